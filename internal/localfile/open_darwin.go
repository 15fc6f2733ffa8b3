package localfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openDirectory opens an absolute path without following a symbolic link.
func openDirectory(dir string) (*os.File, error) {
	return open(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// A path below has no dots, so that it leads out of d by links only.
func directoryBelow(d *os.File, rel string) (*os.File, error) {
	return open(int(d.Fd()), rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// openBelow does not wait for the other end of a FIFO.
func openBelow(d *os.File, rel string) (*os.File, error) {
	return open(int(d.Fd()), rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

func createIn(d *os.File, name string) (*os.File, error) {
	return open(int(d.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
}

// open has the kernel refuse a symbolic link anywhere on the way, which it can
// since macOS 11.
func open(at int, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(at, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW_ANY, mode)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("a symbolic link lies on the way: %w", err)
		}
		return nil, err
	}
}

func modeIn(d *os.File, name string) (fs.FileMode, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fs.ModeIrregular, nil
	}
	return 0, nil
}

func renameIn(d *os.File, from, to string, overwrite bool) error {
	flags := uint32(unix.RENAME_EXCL)
	if overwrite {
		flags = 0
	}
	return unix.RenameatxNp(int(d.Fd()), from, int(d.Fd()), to, flags)
}

func removeIn(d *os.File, name string) error { return unix.Unlinkat(int(d.Fd()), name, 0) }

func names(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Nlink) }
