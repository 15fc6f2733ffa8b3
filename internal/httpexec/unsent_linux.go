package httpexec

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent reports whether the kernel holds bytes of a connection that it has
// never put on the wire. One of which that cannot be told has some.
func unsent(raw syscall.RawConn) bool {
	n, failed := 0, error(nil)
	err := raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) })
	return err != nil || failed != nil || n > 0
}
