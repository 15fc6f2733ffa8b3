package httpexec

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// normal returns t with its defaults filled in, or why it cannot be a target.
func (t Target) normal() (Target, error) {
	switch t.Scheme {
	case "https", "http":
	default:
		return t, blocked("the scheme is neither https nor http")
	}
	if t.Port == 0 {
		t.Port = schemePort(t.Scheme)
	}
	if t.Port < 1 || t.Port > 65535 {
		return t, blocked("the port is out of range")
	}
	if t.Timeout < 0 || t.MaxBody < 0 {
		return t, blocked("a limit is negative")
	}
	if t.Timeout == 0 {
		t.Timeout = DefaultTimeout
	}
	if t.MaxBody == 0 {
		t.MaxBody = DefaultMaxBody
	}
	if t.Begin == nil {
		t.Begin = func() error { return nil }
	}
	if t.Sent == nil {
		t.Sent = func() {}
	}
	if t.Quiet == nil {
		t.Quiet = context.Background()
	}
	if n := len(t.Host); n > 2 && t.Host[0] == '[' && t.Host[n-1] == ']' {
		t.Host = t.Host[1 : n-1]
		if !strings.Contains(t.Host, ":") {
			return t, blocked("brackets are for IPv6 addresses")
		}
	}
	if reason := refuseHost(t.Host); reason != "" {
		return t, blocked(reason)
	}
	return t, nil
}

func schemePort(scheme string) int {
	if scheme == "http" {
		return 80
	}
	return 443
}

// refuseHost returns why host is not a host that every part of the way reads
// alike, or "". One value makes the name lookup, the certificate check and the
// Host line, so userinfo, ports, escapes and odd number spellings have no place
// in it.
func refuseHost(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return "" // the address rule decides
	}
	if host == "" || len(host) > 253 {
		return "the host is empty or too long"
	}
	for _, label := range strings.Split(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 {
			return "the host has an empty or too long label"
		}
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return "the host has a character that host names do not have"
			}
		}
	}
	if endsInNumber(host) {
		return "the host is a number in a spelling that resolvers read differently"
	}
	return ""
}

// endsInNumber reports whether some resolvers would read host as an IPv4
// address: 2852039166, 127.1, 0xA9FEA9FE, 0251.0376.0251.0376.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits := strings.TrimLeft(last, "0123456789") == ""
	hex, isHex := strings.CutPrefix(last, "0x")
	return digits || isHex && strings.TrimLeft(hex, "0123456789abcdef") == ""
}

// authority is the value of the Host line.
func (t Target) authority() string {
	if t.Port != schemePort(t.Scheme) {
		return net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	}
	if strings.Contains(t.Host, ":") {
		return "[" + t.Host + "]"
	}
	return t.Host
}
