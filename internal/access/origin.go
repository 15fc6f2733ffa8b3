package access

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Origin is the one place an HTTP credential goes to: scheme, host and port.
// Host is canonical: lower case ASCII, or an IP address without brackets.
type Origin struct {
	Scheme string
	Host   string
	Port   int
}

// String is the canonical text, with the port always written.
func (o Origin) String() string {
	if o == (Origin{}) {
		return ""
	}
	return o.Scheme + "://" + Address{o.Host, o.Port}.String()
}

// Loopback reports whether the host names this machine by itself, without
// asking a resolver what it means.
func (o Origin) Loopback() bool { return isLoopback(o.Host) }

// Address is a canonical host and a port.
type Address struct {
	Host string
	Port int
}

func (a Address) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// parseOrigin reads an origin by hand: a URL parser understands more than an
// origin may say.
func parseOrigin(s string) (Origin, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Origin{}, errors.New("must be scheme://host or scheme://host:port")
	}
	port := 0
	switch scheme = strings.ToLower(scheme); scheme {
	case "https":
		port = 443
	case "http":
		port = 80
	default:
		return Origin{}, errors.New("the scheme must be https or http")
	}
	switch {
	case strings.Contains(rest, "@"):
		return Origin{}, errors.New("an origin has no user")
	case strings.ContainsAny(rest, "/?#"):
		return Origin{}, errors.New("an origin ends after host and port: no path, query or fragment")
	}
	a, err := parseAddress(rest, port)
	if err != nil {
		return Origin{}, err
	}
	return Origin{Scheme: scheme, Host: a.Host, Port: a.Port}, nil
}

// parseAddress reads 'host', 'host:port', '[ipv6]' or '[ipv6]:port'.
func parseAddress(s string, defaultPort int) (Address, error) {
	host, port := s, ""
	hasPort := false
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return Address{}, errors.New("'[' has no ']'")
		}
		host, port = s[:end+1], s[end+1:]
		if port != "" && port[0] != ':' {
			return Address{}, errors.New("only a port may follow ']'")
		}
		hasPort = port != ""
		port = strings.TrimPrefix(port, ":")
	} else {
		host, port, hasPort = strings.Cut(s, ":")
	}
	canonical, err := canonicalHost(host)
	if err != nil {
		return Address{}, err
	}
	if !hasPort {
		return Address{canonical, defaultPort}, nil
	}
	n, err := parsePort(port)
	if err != nil {
		return Address{}, err
	}
	return Address{canonical, n}, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, errors.New("the port must be a number from 1 to 65535")
	}
	return int(n), nil
}

// hostProfile maps no characters, so that a host that is not what it looks
// like is an error and not silently another host.
var hostProfile = idna.New(
	idna.ValidateLabels(true), idna.CheckHyphens(true), idna.CheckJoiners(true),
	idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true),
)

// canonicalHost lowers case, strips one trailing dot and goes to ASCII. What
// needs more than that to become canonical is refused.
func canonicalHost(s string) (string, error) {
	if strings.HasPrefix(s, "[") {
		return canonicalIPv6(strings.TrimSuffix(s[1:], "]"))
	}
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return "", errors.New("the host is missing")
	}
	host, err := hostProfile.ToASCII(strings.ToLower(s))
	if err != nil || host == "" || strings.ToLower(host) != host {
		return "", errors.New("the host is not a valid name")
	}
	// Whatever ends in a number is an IPv4 address to some resolvers: 127.1,
	// 2852039166, 0xa9fea9fe. Only the four decimal numbers are read by all alike.
	last := host[strings.LastIndexByte(host, '.')+1:]
	if isNumeric(last) {
		a, err := netip.ParseAddr(host)
		if err != nil || !a.Is4() {
			return "", errors.New("the host ends in a number but is not an IPv4 address of four decimal numbers")
		}
		return host, checkLiteral(a)
	}
	return host, nil
}

func canonicalIPv6(s string) (string, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || !a.Is6():
		return "", errors.New("what stands in brackets is not an IPv6 address")
	case a.Zone() != "":
		return "", errors.New("an address with a zone is not the same on every machine")
	case a.Is4In6():
		return "", fmt.Errorf("the address must be written as IPv4: %s", a.Unmap())
	case a.String() != strings.ToLower(s):
		return "", fmt.Errorf("the address must be written as [%s]", a)
	}
	return a.String(), checkLiteral(a)
}

func isNumeric(label string) bool {
	digits, hex := label, false
	if strings.HasPrefix(label, "0x") {
		digits, hex = label[2:], true
	}
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (!hex || c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// checkLiteral refuses addresses that no action may ever reach, so that the
// file says so and not the first request.
func checkLiteral(a netip.Addr) error {
	switch {
	case a.IsUnspecified(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("the address is not that of one machine")
	case a.IsLinkLocalUnicast(), isMetadata(a):
		return errors.New("link-local and metadata addresses are never reached")
	}
	return nil
}

// metadata are addresses at which clouds hand out credentials, outside of the
// link-local ranges.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("168.63.129.16"),
}

func isMetadata(a netip.Addr) bool {
	for _, m := range metadata {
		if a == m {
			return true
		}
	}
	return false
}

var sharedRange = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598

// namesPrivate reports whether a host says by itself that it is private: a
// literal address of a private range, or this machine.
func namesPrivate(host string) bool {
	if isLoopback(host) {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.IsPrivate() || sharedRange.Contains(a))
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
