package endpoint

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// nodeHandle is an O_PATH descriptor: connecting through it reaches this node
// and no other, and keeps its number from being given out again.
type nodeHandle int

func openNodeHandle(d *directory, name string) (nodeHandle, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return nodeHandle(fd), st, nil
}

func (h nodeHandle) close() { unix.Close(int(h)) }

func (h nodeHandle) address(string) string { return fmt.Sprintf("/proc/self/fd/%d", int(h)) }

func openRoot() (int, error) {
	return unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func openChild(dirfd int, name string) (int, error) {
	return unix.Openat(dirfd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// renameNew renames tmp to name unless name exists.
func renameNew(dirfd int, tmp, name string) error {
	return unix.Renameat2(dirfd, tmp, dirfd, name, unix.RENAME_NOREPLACE)
}

// narrow gives the socket its mode before it is bound: the node appears with
// it, and the umask can only take from it.
func narrow(c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) }); err != nil {
		return err
	}
	return failed
}
