package dialrule

import "net/netip"

// never are ranges that no access file can open: they answer for the machine or
// its cloud rather than for a host, or they hide another address.
var never = []struct {
	prefix netip.Prefix
	is     string
}{
	// Where clouds hand credentials to whoever asks from the machine itself.
	// The first is link-local anyway; it stands here to be found.
	{netip.MustParsePrefix("169.254.169.254/32"), "is a cloud metadata service"}, // most clouds
	{netip.MustParsePrefix("fd00:ec2::254/128"), "is a cloud metadata service"},  // EC2 over IPv6
	{netip.MustParsePrefix("fd20:ce::254/128"), "is a cloud metadata service"},   // Google over IPv6
	{netip.MustParsePrefix("100.100.100.200/32"), "is a cloud metadata service"}, // Alibaba
	{netip.MustParsePrefix("192.0.0.192/32"), "is a cloud metadata service"},     // Oracle
	{netip.MustParsePrefix("168.63.129.16/32"), "is a cloud metadata service"},   // Azure

	{netip.MustParsePrefix("0.0.0.0/8"), "is unspecified"}, // 0.0.0.0 reaches loopback
	{netip.MustParsePrefix("169.254.0.0/16"), "is link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "is multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "is reserved or broadcast"},
	{netip.MustParsePrefix("::/96"), "is unspecified or an obsolete form of IPv4"}, // holds ::1, which is neither
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "is an obsolete form of IPv4"},      // RFC 2765
	{netip.MustParsePrefix("64:ff9b:1::/48"), "is translated by the local network"},
	{netip.MustParsePrefix("100::/64"), "is a discard address"},
	{netip.MustParsePrefix("2001::/32"), "is a Teredo tunnel"},
	{netip.MustParsePrefix("fe80::/10"), "is link-local"},
	{netip.MustParsePrefix("ff00::/8"), "is multicast"},
}

// private are ranges that are dialled only where the access file names them.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carrier NAT, overlay networks
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("2001:db8::/32"), // documentation
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// carried returns the IPv4 address inside a NAT64 or 6to4 address, else a.
func carried(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}
