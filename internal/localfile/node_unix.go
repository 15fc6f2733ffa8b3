//go:build linux || darwin

package localfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// nodeOf is what a path leads to, if this account can reach it.
func nodeOf(dir string) (n node, there bool, err error) {
	var st unix.Stat_t
	switch err := unix.Stat(dir, &st); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
		return node{}, false, nil
	case err != nil:
		return node{}, false, err
	}
	return node{uint64(st.Dev), st.Ino}, true, nil
}

// nodeFrom is what a way of dots leads to.
func nodeFrom(d *os.File, way string) (node, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), way, &st, 0); err != nil {
		return node{}, err
	}
	return node{uint64(st.Dev), st.Ino}, nil
}
