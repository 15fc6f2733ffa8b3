// Package dialrule says which addresses an executor may connect to: addresses,
// not names, so that it is asked after a name was resolved and once more where
// the socket exists.
//
// It trusts the access file for what a target may do and its caller for the
// list of Yett's own ports. It does not trust the address, which comes from
// whoever answers for a name: an address that carries another inside is judged
// by both, and one that hides what it carries is refused. The rule is a
// function of its arguments, with one question to the kernel: which addresses
// are this machine's.
package dialrule

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// Rule is what holds for one target.
type Rule struct {
	Private  bool         // private and loopback ranges are allowed: the access file names them
	Plain    bool         // nothing protects what is sent: loopback only
	OwnPorts func() []int // ports where Yett itself listens, never dialled on this machine. Required.
}

// Refusal is why an address must not be dialled.
type Refusal struct {
	Addr   netip.Addr
	Reason string
}

func (r *Refusal) Error() string {
	// A zone is text of somebody else.
	return fmt.Sprintf("the address %s %s", r.Addr.WithZone(""), r.Reason)
}

// Check returns a *Refusal if ap must not be dialled.
func (r Rule) Check(ap netip.AddrPort) error {
	if reason := r.refuse(ap.Addr(), int(ap.Port())); reason != "" {
		return &Refusal{ap.Addr(), reason}
	}
	return nil
}

// Control is Check for net.Dialer.ControlContext: the last word on an address,
// spoken where the socket exists.
func (r Rule) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("reading the socket's address: %w", err)
	}
	return r.Check(ap)
}

func (r Rule) refuse(a netip.Addr, port int) string {
	if !a.IsValid() {
		return "is not valid"
	}
	if a.Zone() != "" {
		return "has a zone"
	}
	a = a.Unmap()
	inner := carried(a)
	for _, each := range []netip.Addr{a, inner} {
		if reason := r.refuseRange(each); reason != "" {
			return reason
		}
	}
	if r.Plain && !a.IsLoopback() {
		return "is not loopback: plain text goes to loopback only, unless the access file says insecure"
	}
	if slices.Contains(r.OwnPorts(), port) && isLocal(inner) {
		return fmt.Sprintf("is this machine, where port %d is one of Yett's own", port)
	}
	return ""
}

func (r Rule) refuseRange(a netip.Addr) string {
	for _, n := range never {
		if n.prefix.Contains(a) && a != netip.IPv6Loopback() {
			return n.is
		}
	}
	if !r.Private && slices.ContainsFunc(private, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return "lies in a private range, which the access file does not name"
	}
	return ""
}

// isLocal reports whether a is an address of this machine. Where the machine
// cannot say, it is.
func isLocal(a netip.Addr) bool {
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
