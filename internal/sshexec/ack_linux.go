package sshexec

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// promptly returns a function that has the kernel acknowledge at once what has
// come, for the time being. OpenSSH's server leaves Nagle's algorithm on for
// what has no terminal: it holds back a small packet until the one before it
// is acknowledged, and a client's kernel delays that for 40 ms. A new connection
// and its first command meet this two times.
func promptly(c net.Conn) func() {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return func() {}
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return func() {}
	}
	now := func(fd uintptr) { syscall.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) }
	return func() { raw.Control(now) }
}
