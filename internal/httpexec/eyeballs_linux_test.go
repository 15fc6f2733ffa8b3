package httpexec

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// blackHole is an address that answers no connection: its queue is full.
func blackHole(t *testing.T, ip [4]byte, port int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: ip}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(netip.AddrFrom4(ip), uint16(port)).String()
	for range 4 { // until one hangs
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("its queue does not fill")
}

// An address that does not answer costs a quarter of a second, not the time of
// the call.
func TestASilentAddressGetsCompany(t *testing.T) {
	s := newRawServer(t, answers(ok))
	blackHole(t, [4]byte{127, 0, 0, 9}, s.port())
	e := newExecutor(t, resolving("127.0.0.9", "127.0.0.1"))
	target := s.target()
	target.Host = "name.test"
	begin := time.Now()
	res := do(t, e, target, get)
	if took := time.Since(begin); string(res.Body) != "ok" || took < nextAddress || took > 4*nextAddress {
		t.Errorf("%+v after %v", res, took)
	}
}
