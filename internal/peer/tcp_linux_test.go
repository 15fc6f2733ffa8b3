package peer

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

// The kernel says whose socket is at the other end of a connection, and which
// processes hold it, in both families.
func TestTheOtherEndOfATCPConnection(t *testing.T) {
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", network)
		if err != nil {
			t.Logf("no %s here: %v", network, err)
			continue
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		here, there := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
		s, err := TCPSocket(here, there)
		if err != nil || s.UID != os.Getuid() {
			t.Fatalf("%s: %+v, %v", network, s, err)
		}
		found := s.Holders()
		if len(found) != 1 || found[0].PID() != os.Getpid() {
			t.Errorf("%s: held by %d processes, not by this one", network, len(found))
		}
		for _, p := range found {
			p.Close()
		}
		if s, err := TCPSocket(there, netip.AddrPort{}); err != nil || s.Inode == 0 {
			t.Errorf("%s: the listening socket: %+v, %v", network, s, err)
		}
		if _, err := TCPSocket(there, there); err == nil {
			t.Errorf("%s: a connection that is not there was found", network)
		}
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
