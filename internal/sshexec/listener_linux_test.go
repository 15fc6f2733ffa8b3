package sshexec_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/sshexec"
)

// A listener whose queue is full answers no SYN: connecting must end by itself.
func TestDialTimeout(t *testing.T) {
	err := do(t, sshexec.Options{}, sshexec.Target{Address: fullListener(t), Private: true, DialTimeout: 300 * time.Millisecond})
	if e := wantError(t, err, sshexec.CodeUpstream, false); !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("cause = %v", e.Cause)
	}
}

// fullListener returns an address where nothing is accepted and no further
// connection is queued.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(sa.(*syscall.SockaddrInet4).Port)).String()
	for range 8 {
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the listener's queue does not fill")
	return ""
}
