package endpoint

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// nodeHandle is empty: macOS cannot hold a socket's node open. The private
// directory keeps others from replacing it.
type nodeHandle struct{}

func openNodeHandle(d *directory, name string) (nodeHandle, unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return nodeHandle{}, st, err
}

func (nodeHandle) close() {}

func (nodeHandle) address(path string) string { return path }

func openRoot() (int, error) {
	return unix.Open("/", unix.O_SEARCH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func openChild(dirfd int, name string) (int, error) {
	return unix.Openat(dirfd, name, unix.O_SEARCH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// renameNew renames tmp to name unless name exists.
func renameNew(dirfd int, tmp, name string) error {
	return unix.RenameatxNp(dirfd, tmp, dirfd, name, unix.RENAME_EXCL)
}

// narrow does nothing: the mode cannot be given before the bind here. The
// private directory covers the moment until it is.
func narrow(syscall.RawConn) error { return nil }
