package httpexec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/yett-broker/yett/internal/dialrule"
)

const (
	// nextAddress is how long one address is tried alone (RFC 8305).
	nextAddress = 250 * time.Millisecond
	// maxAddresses bounds how many of a name are tried.
	maxAddresses = 16
)

// alternate orders addresses so that the families take turns, beginning with
// that of the resolver's first.
func alternate(all []netip.AddrPort) []netip.AddrPort {
	if len(all) == 0 {
		return all
	}
	var same, other []netip.AddrPort
	for _, a := range all {
		if a.Addr().Is4() == all[0].Addr().Is4() {
			same = append(same, a)
		} else {
			other = append(other, a)
		}
	}
	out := make([]netip.AddrPort, 0, len(all))
	for i := range max(len(same), len(other)) {
		if i < len(same) {
			out = append(out, same[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out[:min(len(out), maxAddresses)]
}

// dialed is what came of one address.
type dialed struct {
	conn *net.TCPConn
	err  error
}

// dial connects to one of the addresses, each of which was checked. One that
// does not answer at once gets company by the next; the first connection wins and
// the others are closed. Nothing is sent on any of them.
func dial(ctx context.Context, rule dialrule.Rule, targets []netip.AddrPort) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	targets = alternate(targets)
	results := make(chan dialed, len(targets))
	begun, ended := 0, 0
	begin := func() {
		ap := targets[begun]
		begun++
		go func() {
			c, err := dialOne(ctx, rule, ap)
			results <- dialed{c, err}
		}()
	}
	begin()
	defer func() { // what still connects is not used
		for left := begun - ended; left > 0; left-- {
			go func() {
				if d := <-results; d.conn != nil {
					d.conn.Close()
				}
			}()
		}
	}()
	next := time.NewTimer(nextAddress)
	defer next.Stop()
	var failed error
	for {
		select {
		case d := <-results:
			ended++
			if d.err == nil {
				return d.conn, nil
			}
			if e, ok := errors.AsType[*Error](d.err); ok && e.Code == CodeTargetBlocked {
				return nil, d.err
			}
			failed = d.err
			if begun < len(targets) {
				begin()
				next.Reset(nextAddress)
			} else if ended == begun {
				return nil, failed
			}
		case <-next.C:
			if begun < len(targets) {
				begin()
				next.Reset(nextAddress)
			}
		}
	}
}

func dialOne(ctx context.Context, rule dialrule.Rule, ap netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{ControlContext: rule.Control, FallbackDelay: -1}
	c, err := d.DialContext(ctx, "tcp", ap.String())
	if err == nil {
		return c.(*net.TCPConn), nil
	}
	if refusal, ok := errors.AsType[*dialrule.Refusal](err); ok {
		return nil, &Error{Code: CodeTargetBlocked, Cause: refusal}
	}
	return nil, notSent(fmt.Errorf("dialling %s: %w", ap, plain(err)))
}
