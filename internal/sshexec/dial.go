package sshexec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/yett-broker/yett/internal/dialrule"
)

// dial resolves the address of a host once, judges every answer, and connects
// to one of exactly these.
func (e *Executor) dial(ctx context.Context, h hop, limit time.Duration) (net.Conn, *Error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, noConnection(limit))
	defer cancel()
	addrs, port, err := e.lookUp(ctx, h.address)
	if err != nil {
		return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, err)}
	}
	rule := dialrule.Rule{Private: h.private, OwnPorts: e.ownPorts}
	for _, a := range addrs {
		if err := rule.Check(netip.AddrPortFrom(a, port)); err != nil {
			return nil, &Error{Code: CodeTargetBlocked, Cause: fmt.Errorf("dialling %s: %w", h.address, err)}
		}
	}
	conn, err := dialOne(ctx, rule, addrs, port)
	if _, refused := errors.AsType[*dialrule.Refusal](err); refused {
		return nil, &Error{Code: CodeTargetBlocked, Cause: fmt.Errorf("dialling %s: %w", h.address, err)}
	}
	if err != nil {
		return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, err)}
	}
	return conn, nil
}

func noConnection(limit time.Duration) error {
	return fmt.Errorf("no connection within %s: %w", limit, context.DeadlineExceeded)
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

// dialOne tries the addresses in turn; each gets an equal part of the time
// that is left, and the last one all of it.
func dialOne(ctx context.Context, rule dialrule.Rule, addrs []netip.Addr, port uint16) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	var first error
	for i, a := range addrs {
		d := net.Dialer{ControlContext: rule.Control}
		if more := len(addrs) - i; more > 1 {
			d.Timeout = time.Until(deadline) / time.Duration(more)
		}
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		if err == nil {
			return conn, nil
		}
		if refusal, ok := errors.AsType[*dialrule.Refusal](err); ok {
			return nil, refusal
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
