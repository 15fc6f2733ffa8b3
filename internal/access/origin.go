package access

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
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

// NamesPrivate reports whether the host says by itself that it is private: a
// literal address of a private range, or this machine.
func (o Origin) NamesPrivate() bool { return namesPrivate(o.Host) }

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

// ParseAddress reads the address of an SSH host.
func ParseAddress(s string) (Address, error) { return parseAddress(s, 22) }

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
	idna.ValidateForRegistration(), idna.CheckHyphens(true), idna.CheckJoiners(true),
	idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true),
)

// hostForm is checked on the result: nothing of the profile's options is
// taken on trust.
var hostForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

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
	if err != nil || !hostForm.MatchString(host) {
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
// file says so and not the first request. The executors decide again, on the
// address that they dial.
func checkLiteral(a netip.Addr) error {
	switch {
	case inAny(metadata, a):
		return errors.New("link-local and metadata addresses are never reached")
	case inAny(unusable, a):
		return errors.New("the address is not that of one machine")
	}
	return nil
}

var (
	// metadata are link-local ranges, and the other addresses at which clouds
	// hand out credentials.
	metadata = prefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128",
		"100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32")
	unusable = prefixes("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "ff00::/8")
	// private are ranges that mean something else in every network.
	private = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "::1/128",
		"100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
		"2001:db8::/32", "fc00::/7", "fec0::/10")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func inAny(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// namesPrivate reports whether a host says by itself that it is private: a
// literal address of a private range, or this machine.
func namesPrivate(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && inAny(private, a)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
