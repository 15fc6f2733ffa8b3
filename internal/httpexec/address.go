package httpexec

import (
	"net"
	"net/netip"
	"slices"
)

// metadata are addresses where clouds hand credentials to whoever asks from
// the machine itself. The first is link-local anyway; it stands here to be
// found.
var metadata = prefixes(
	"169.254.169.254/32", // most clouds
	"fd00:ec2::254/128",  // EC2 over IPv6
	"fd20:ce::254/128",   // Google over IPv6
	"100.100.100.200/32", // Alibaba
	"192.0.0.192/32",     // Oracle
	"168.63.129.16/32",   // Azure
)

// never are ranges that no access file can allow.
var never = prefixes(
	"0.0.0.0/8",       // 'this network'; 0.0.0.0 reaches loopback
	"169.254.0.0/16",  // link-local
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, broadcast
	"::/128",          // unspecified
	"fe80::/10",       // link-local
	"ff00::/8",        // multicast
	"2001::/32",       // Teredo: hides an IPv4 address
	"64:ff9b:1::/48",  // local NAT64: hides one at a place that only its network knows
	"::ffff:0:0:0/96", // translated IPv4 (RFC 2765)
	"100::/64",        // discard
)

// private are ranges that only a target with Private may use.
var private = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
	"127.0.0.0/8", "::1/128",
	"100.64.0.0/10",                 // carrier NAT, overlay networks
	"192.0.0.0/24", "198.18.0.0/15", // protocol assignments, benchmarks
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", // documentation
	"fc00::/7", "fec0::/10",
)

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	compatible = netip.MustParsePrefix("::/96")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func in(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// embedded returns the IPv4 address that an IPv6 address leads to.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return netip.Addr{}, false
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), compatible.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// addressRule decides on addresses, not on names: every address that a name
// resolved to, and the one that is dialled once more in the socket's own hook.
type addressRule struct {
	private  bool // private ranges are allowed
	plain    bool // plain http without leave for it: loopback only
	ownPorts func() []int
}

// refuse returns why a must not be dialled, or "".
func (r addressRule) refuse(ap netip.AddrPort) string {
	a := ap.Addr()
	if a.Zone() != "" {
		return "an address with a zone is never used"
	}
	a = a.Unmap()
	if reason := r.refuseRange(a); reason != "" {
		return reason
	}
	if v4, ok := embedded(a); ok {
		if reason := r.refuseRange(v4); reason != "" {
			return reason
		}
	}
	if r.plain && !a.IsLoopback() {
		return "plain http goes to loopback only, unless the access file says insecure"
	}
	if slices.Contains(r.ownPorts(), int(ap.Port())) && isLocal(a) {
		return "this is one of Yett's own ports"
	}
	return ""
}

func (r addressRule) refuseRange(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "the address is not valid"
	case in(metadata, a):
		return "the address belongs to a cloud metadata service"
	case in(never, a):
		return "the address lies in a range that is never used"
	case !r.private && in(private, a):
		return "the address lies in a private range that the access file does not name"
	}
	return ""
}

// isLocal reports whether a is an address of this machine. Where the machine
// cannot say, it is.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(list, func(n net.Addr) bool {
		p, err := netip.ParsePrefix(n.String())
		return err == nil && p.Addr().Unmap().WithZone("") == a
	})
}
