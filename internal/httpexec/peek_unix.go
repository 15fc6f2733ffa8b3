//go:build linux || darwin

package httpexec

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet reports whether an idle connection is open and has nothing to read.
// Bytes nobody asked for, or an end, make it unfit for another request.
func quiet(raw syscall.RawConn) bool {
	var b [1]byte
	var errno error
	err := raw.Read(func(fd uintptr) bool {
		_, _, errno = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return true
	})
	return err == nil && (errno == unix.EAGAIN || errno == unix.EWOULDBLOCK)
}
