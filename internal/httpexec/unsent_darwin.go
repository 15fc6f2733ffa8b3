package httpexec

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent reports whether the kernel holds bytes of a connection that the other
// side has not acknowledged: which of them were on the wire is not told here.
func unsent(raw syscall.RawConn) bool {
	n, failed := 0, error(nil)
	err := raw.Control(func(fd uintptr) { n, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NWRITE) })
	return err != nil || failed != nil || n > 0
}
