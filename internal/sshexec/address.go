package sshexec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// neverDialled are addresses that no access file can open: they answer for the
// machine or its cloud rather than for a host, or they hide another address.
var neverDialled = []struct {
	prefix netip.Prefix
	reason string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local or metadata"},
	{netip.MustParsePrefix("100.100.100.200/32"), "metadata"},
	{netip.MustParsePrefix("168.63.129.16/32"), "metadata"},
	{netip.MustParsePrefix("192.0.0.0/24"), "metadata or protocol assignment"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved or broadcast"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "metadata"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "metadata"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "locally translated"},
	{netip.MustParsePrefix("2001::/32"), "tunnelled"},
}

// privateRanges are dialled only where the access file names them.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
	compat    = netip.MustParsePrefix("::/96") // IPv4-compatible, deprecated
)

// judge returns why a may not be dialled. An address that carries an IPv4
// address inside is judged by what it carries.
func judge(a netip.Addr, private bool) error {
	if a.Zone() != "" {
		return fmt.Errorf("address %s has a zone", a)
	}
	a = carried(a)
	if compat.Contains(a) && a != netip.IPv6Loopback() {
		return fmt.Errorf("address %s is unspecified or an obsolete form", a)
	}
	for _, n := range neverDialled {
		if n.prefix.Contains(a) {
			return fmt.Errorf("address %s is %s", a, n.reason)
		}
	}
	if private {
		return nil
	}
	for _, p := range privateRanges {
		if p.Contains(a) {
			return fmt.Errorf("address %s is private and the access file does not allow private addresses for this host", a)
		}
	}
	return nil
}

// carried returns the IPv4 address inside a mapped, NAT64 or 6to4 address,
// else a itself.
func carried(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is4() {
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

// dial resolves the target once, judges every address, and connects to one of
// exactly these addresses.
func (e *Executor) dial(ctx context.Context, t Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.DialTimeout,
		fmt.Errorf("no connection within %s: %w", t.DialTimeout, context.DeadlineExceeded))
	defer cancel()
	addrs, port, err := e.resolve(ctx, t.Address)
	if err != nil {
		return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, err)}
	}
	for _, a := range addrs {
		if err := e.judgePort(a, port, t.Private); err != nil {
			return nil, &Error{Code: CodeTargetBlocked, Cause: fmt.Errorf("dialling %s: %w", t.Address, err)}
		}
	}
	conn, err := dialOne(ctx, addrs, port)
	if err != nil {
		return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, err)}
	}
	return conn, nil
}

func (e *Executor) resolve(ctx context.Context, address string) ([]netip.Addr, uint16, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the address: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, 0, fmt.Errorf("address %q has no usable port", address)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, uint16(port), nil
	}
	addrs, err := e.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, 0, fmt.Errorf("resolving the host: %w", err)
	}
	if len(addrs) == 0 {
		return nil, 0, errors.New("resolving the host: no addresses")
	}
	return addrs, uint16(port), nil
}

func (e *Executor) judgePort(a netip.Addr, port uint16, private bool) error {
	if err := judge(a, private); err != nil {
		return err
	}
	if carried(a).IsLoopback() && slices.Contains(e.ownPorts, port) {
		return fmt.Errorf("port %d is one of Yett's own", port)
	}
	return nil
}

// dialOne tries the addresses in turn; each gets an equal part of the time
// that is left.
func dialOne(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	var first error
	for i, a := range addrs {
		d := net.Dialer{Timeout: time.Until(deadline) / time.Duration(len(addrs)-i)}
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("connecting: %w", first)
}

// whyEnded prefers the reason for which ctx ended to the error that its end
// brought about.
func whyEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
