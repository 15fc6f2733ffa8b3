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
	what   string
}{
	{netip.MustParsePrefix("169.254.169.254/32"), "a cloud metadata service"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "a cloud metadata service"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a cloud metadata service"},
	{netip.MustParsePrefix("100.100.100.200/32"), "a cloud metadata service"},
	{netip.MustParsePrefix("192.0.0.192/32"), "a cloud metadata service"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud metadata service"},
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved or broadcast"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("100::/64"), "a discard address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "translated by the local network"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "an obsolete translated form"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo tunnel"},
}

// privateRanges are dialled only where the access file names them.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carrier NAT, overlay networks
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	compatible = netip.MustParsePrefix("::/96") // IPv4-compatible, obsolete; holds :: and ::1
)

// judge returns why a may not be dialled. An address that carries an IPv4
// address inside is judged by what it carries.
func judge(a netip.Addr, private bool) error {
	if !a.IsValid() || a.Zone() != "" {
		return fmt.Errorf("address %s is invalid or has a zone", a)
	}
	a = carried(a)
	if compatible.Contains(a) && a != netip.IPv6Loopback() {
		return fmt.Errorf("address %s is unspecified or an obsolete form", a)
	}
	for _, n := range neverDialled {
		if n.prefix.Contains(a) {
			return fmt.Errorf("address %s is %s", a, n.what)
		}
	}
	inside := func(p netip.Prefix) bool { return p.Contains(a) }
	if !private && slices.ContainsFunc(privateRanges, inside) {
		return fmt.Errorf("address %s is in a private range, which the access file does not name for this host", a)
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

// isLocal reports whether a is an address of this machine. Where the machine
// cannot say, it is.
func isLocal(a netip.Addr) bool {
	a = carried(a)
	if a.IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(own, func(n net.Addr) bool {
		p, err := netip.ParsePrefix(n.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// dial resolves the target once, judges every address, and connects to one of
// exactly these addresses.
func (e *Executor) dial(ctx context.Context, t Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.DialTimeout,
		fmt.Errorf("no connection within %s: %w", t.DialTimeout, context.DeadlineExceeded))
	defer cancel()
	addrs, port, err := e.lookUp(ctx, t.Address)
	if err != nil {
		return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, err)}
	}
	for _, a := range addrs {
		if err := e.judgePlace(a, port, t.Private); err != nil {
			return nil, &Error{Code: CodeTargetBlocked, Cause: fmt.Errorf("dialling %s: %w", t.Address, err)}
		}
	}
	conn, err := dialOne(ctx, addrs, port)
	if err != nil {
		return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, err)}
	}
	return conn, nil
}

func (e *Executor) lookUp(ctx context.Context, address string) ([]netip.Addr, uint16, error) {
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
	addrs, err := e.resolve(ctx, host)
	if err != nil {
		return nil, 0, fmt.Errorf("resolving the host: %w", err)
	}
	if len(addrs) == 0 {
		return nil, 0, errors.New("resolving the host: no addresses")
	}
	return addrs, uint16(port), nil
}

func (e *Executor) judgePlace(a netip.Addr, port uint16, private bool) error {
	if err := judge(a, private); err != nil {
		return err
	}
	if slices.Contains(e.ownPorts(), int(port)) && isLocal(a) {
		return fmt.Errorf("port %d on this machine is one of Yett's own", port)
	}
	return nil
}

// dialOne tries the addresses in turn; each gets an equal part of the time
// that is left, and the last one all of it.
func dialOne(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	var first error
	for i, a := range addrs {
		var d net.Dialer
		if more := len(addrs) - i; more > 1 {
			d.Timeout = time.Until(deadline) / time.Duration(more)
		}
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
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done() // the network may have noticed the deadline a moment earlier
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
