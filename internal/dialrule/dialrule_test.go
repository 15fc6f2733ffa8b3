package dialrule

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func noPorts() []int { return nil }

// check judges an address on a port that is nobody's.
func check(r Rule, addr string) error {
	if r.OwnPorts == nil {
		r.OwnPorts = noPorts
	}
	return r.Check(netip.AddrPortFrom(netip.MustParseAddr(addr), 443))
}

var neverDialled = []string{
	"169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16", // metadata
	"0.0.0.0", "0.1.2.3", "0.255.255.255", "169.254.0.0", "169.254.1.1", "169.254.255.255",
	"224.0.0.0", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"::", "::2", "::169.254.169.254", "::127.0.0.1", "::10.0.0.1", "::1.1.1.1", "::255.255.255.255",
	"::ffff:0:a9fe:a9fe", "::ffff:0:101:101", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1::1.1.1.1",
	"100::1", "2001::1", "2001:0:1::1", "2001:0:a9fe:a9fe::1",
	"fe80::1", "febf::1", "ff00::1", "ff02::1", "ffff::1",
	"::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::ffff:0.0.0.0",
	"64:ff9b::169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b::0.0.0.0", "2002:a9fe:a9fe::1", "2002::1", "2002:e000:1::1",
	"fe80::1%lo", "::1%lo", "fe80::1%25lo", "2606:4700::1%lo", "::ffff:1.1.1.1%lo",
}

func TestNeverDialled(t *testing.T) {
	for _, a := range neverDialled {
		for _, r := range []Rule{{}, {Private: true}} {
			var refusal *Refusal
			if err := check(r, a); !errors.As(err, &refusal) || refusal.Reason == "" {
				t.Errorf("%s with %+v: %v", a, r.Private, err)
			}
		}
	}
	var refusal *Refusal
	if err := (Rule{Private: true, OwnPorts: noPorts}).Check(netip.AddrPort{}); !errors.As(err, &refusal) {
		t.Errorf("no address: %v", err)
	}
}

var privateAddresses = []string{
	"10.0.0.0", "10.1.2.3", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.8.8.8", "172.16.0.1", "172.31.255.255",
	"192.168.1.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
	"::1", "2001:db8::1", "fc00::1", "fd12::1", "fdff::1", "fec0::1", "feff::1",
	"::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:c0a8:101::1",
}

func TestPrivateNeedsTheAccessFile(t *testing.T) {
	for _, a := range privateAddresses {
		if err := check(Rule{}, a); err == nil {
			t.Errorf("%s is allowed", a)
		}
		if err := check(Rule{Private: true}, a); err != nil {
			t.Errorf("%s where it is named: %v", a, err)
		}
	}
}

var public = []string{
	"1.0.0.0", "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
	"168.63.129.15", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.1", "192.0.1.0", "192.167.255.255", "192.169.0.0",
	"198.17.255.255", "198.20.0.0", "223.255.255.255", "2001:1::1", "2606:4700::1111", "101::1", "fbff::1", "64:ff9b:2::1",
	"::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1",
}

func TestPublicIsDialled(t *testing.T) {
	for _, a := range public {
		for _, r := range []Rule{{}, {Private: true}} {
			if err := check(r, a); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
	}
}

// TestDisguisesAreSeenThrough: no form of an IPv4 address is judged more mildly
// than the address.
func TestDisguisesAreSeenThrough(t *testing.T) {
	disguises := map[string]func(b [4]byte) [16]byte{
		"mapped": func(b [4]byte) [16]byte { return [16]byte{10: 255, 11: 255, 12: b[0], 13: b[1], 14: b[2], 15: b[3]} },
		"NAT64":  func(b [4]byte) [16]byte { return [16]byte{0, 0x64, 0xff, 0x9b, 12: b[0], 13: b[1], 14: b[2], 15: b[3]} },
		"NAT64 here": func(b [4]byte) [16]byte {
			return [16]byte{0, 0x64, 0xff, 0x9b, 0, 1, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
		},
		"6to4":       func(b [4]byte) [16]byte { return [16]byte{0x20, 2, b[0], b[1], b[2], b[3], 15: 1} },
		"Teredo":     func(b [4]byte) [16]byte { return [16]byte{0x20, 1, 12: ^b[0], 13: ^b[1], 14: ^b[2], 15: ^b[3]} },
		"compatible": func(b [4]byte) [16]byte { return [16]byte{12: b[0], 13: b[1], 14: b[2], 15: b[3]} },
		"translated": func(b [4]byte) [16]byte { return [16]byte{8: 255, 9: 255, 12: b[0], 13: b[1], 14: b[2], 15: b[3]} },
	}
	seen := 0
	for _, plain := range append(append([]string{}, neverDialled...), privateAddresses...) {
		a := netip.MustParseAddr(plain)
		if !a.Is4() {
			continue
		}
		for name, disguise := range disguises {
			b := netip.AddrFrom16(disguise(a.As4()))
			if name == "compatible" && b == netip.IPv6Loopback() {
				continue
			}
			for _, r := range []Rule{{}, {Private: true}, {Private: true, Plain: true}} {
				seen++
				if check(r, plain) != nil && check(r, b.String()) == nil {
					t.Errorf("%s is refused and allowed as %s (%s)", plain, b, name)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d pairs", seen)
	}
}

func TestPlainGoesToLoopbackOnly(t *testing.T) {
	r := Rule{Private: true, Plain: true}
	for _, a := range []string{"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"} {
		if err := check(r, a); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	for _, a := range []string{"10.1.2.3", "1.1.1.1", "fd12::1", "2606:4700::1111", "64:ff9b::127.0.0.1", "2002:7f00:1::1"} {
		if err := check(r, a); err == nil {
			t.Errorf("%s is allowed", a)
		}
	}
	if err := check(Rule{Plain: true}, "127.0.0.1"); err == nil {
		t.Error("loopback is allowed although the access file does not name it")
	}
}

func TestOwnPortsAreNeverDialled(t *testing.T) {
	const port = 4711
	r := Rule{Private: true, OwnPorts: func() []int { return []int{1, port} }}
	local := []string{"127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range interfaces {
		a := netip.MustParsePrefix(n.String()).Addr()
		local = append(local, a.String())
		if b := a.As16(); a.Is4() {
			local = append(local, netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: b[12], 13: b[13], 14: b[14], 15: b[15]}).String())
		}
	}
	for _, a := range local {
		if err := r.Check(netip.AddrPortFrom(netip.MustParseAddr(a), port)); err == nil {
			t.Errorf("own port on %s is allowed", a)
		}
	}
	for _, ap := range []string{"1.1.1.1:4711", "[2606:4700::1111]:4711", "127.0.0.1:4712"} {
		if err := r.Check(netip.MustParseAddrPort(ap)); err != nil {
			t.Errorf("%s: %v", ap, err)
		}
	}
}

// TestControlRefusesWhereTheSocketExists: a dialer with the rule connects to
// nothing that the rule refuses, and its error is a *Refusal.
func TestControlRefusesWhereTheSocketExists(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{ControlContext: Rule{OwnPorts: noPorts}.Control}
	var refusal *Refusal
	if c, err := d.DialContext(t.Context(), "tcp", l.Addr().String()); !errors.As(err, &refusal) {
		t.Fatalf("%v, %v", c, err)
	}
	d.ControlContext = Rule{Private: true, OwnPorts: noPorts}.Control
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := (Rule{Private: true, OwnPorts: noPorts}).Control(t.Context(), "tcp", "nonsense", nil); err == nil {
		t.Error("an address that cannot be read is allowed")
	}
}

func TestRefusalDoesNotRepeatAZone(t *testing.T) {
	err := check(Rule{}, "fe80::1%evil\x1b[2J")
	if err == nil || strings.Contains(err.Error(), "evil") || !strings.Contains(err.Error(), "fe80::1 has a zone") {
		t.Errorf("%v", err)
	}
}
