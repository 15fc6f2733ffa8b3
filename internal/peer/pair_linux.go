package peer

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OfPair takes the evidence of the process that made the unnamed socket pair
// of which f is one end. It leaves f and its mode as they are.
func OfPair(f *os.File) (*Process, error) {
	err := withFd(f, func(fd int) error {
		if !unnamed(fd, unix.SYS_GETSOCKNAME) || !unnamed(fd, unix.SYS_GETPEERNAME) {
			return noAttribution("not an unnamed pair of unix sockets")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	return peerOf(raw)
}

// unnamed asks for a name by its length: the wrappers show no name and an
// abstract name that begins with NUL alike.
func unnamed(fd int, call uintptr) bool {
	var address unix.RawSockaddrUnix
	size := uint32(unsafe.Sizeof(address))
	_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)))
	return errno == 0 && address.Family == unix.AF_UNIX && size == uint32(unsafe.Offsetof(address.Path))
}
