package endpoint

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Installed is the program that is installed as name: the file beside the
// running program. Neither PATH nor any other variable is asked.
func Installed(name string) (path string, dev, ino uint64, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", 0, 0, fmt.Errorf("finding the running program: %w", err)
	}
	path = filepath.Join(filepath.Dir(self), name)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return path, 0, 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if !isKind(&st, unix.S_IFREG) {
		return path, 0, 0, fmt.Errorf("%s is %s, not a program", path, kindOf(&st))
	}
	return path, uint64(st.Dev), st.Ino, nil
}
