package peer

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Number is the process id that the kernel noted when c was made. It is for
// counting before evidence is taken: it may name another process by now, and
// nothing is granted by it.
func Number(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("reaching the socket: %w", err)
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if cerr != nil {
		return 0, fmt.Errorf("reaching the socket: %w", cerr)
	}
	if err != nil {
		return 0, fmt.Errorf("asking who connected: %w", err)
	}
	return int(cred.Pid), nil
}
