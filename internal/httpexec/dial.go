package httpexec

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/yett-broker/yett/internal/dialrule"
)

const (
	resolveTimeout = 10 * time.Second
	dialTimeout    = 10 * time.Second
	tlsTimeout     = 10 * time.Second
)

// conn is one connection to one target. One goroutine uses it at a time.
type conn struct {
	key     poolKey
	tcp     *net.TCPConn
	raw     syscall.RawConn // of tcp
	rw      net.Conn        // tcp, or TLS over it
	in      *limitedReader
	br      *bufio.Reader // over in, which is over rw
	born    time.Time
	timer   *time.Timer // owned by the pool: ends an idle connection
	pending bool        // owned by the pool: to be closed when its call is over
}

// limitedReader bounds what one answer's head may make us read.
type limitedReader struct {
	r    io.Reader
	left int64
	err  error // the first one: parsers may hide it behind a complaint about half a line
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		l.err = cmp.Or(l.err, errHeadTooLong)
		return 0, errHeadTooLong
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	l.err = cmp.Or(l.err, err)
	return n, err
}

// abort closes c so that bytes which the kernel still holds are not sent.
func (c *conn) abort() {
	c.tcp.SetLinger(0)
	c.tcp.Close()
}

// connect resolves the target once, checks every address, and dials one of
// those that it checked. Nothing of the request is sent.
func (e *Executor) connect(ctx context.Context, t Target, key poolKey) (*conn, error) {
	ctx, cancel := context.WithDeadline(ctx, t.deadline)
	defer cancel()
	rule := dialrule.Rule{Private: t.Private, Plain: t.Scheme == "http" && !t.Insecure, OwnPorts: e.ownPorts}
	addrs, err := e.lookup(ctx, t.Host)
	if err != nil {
		return nil, notSent(fmt.Errorf("looking up %s: %w", t.Host, plain(err)))
	}
	targets := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		targets[i] = netip.AddrPortFrom(a.Unmap(), uint16(t.Port))
		// One bad address among good ones is how rebinding looks: refuse all.
		if err := rule.Check(netip.AddrPortFrom(a, uint16(t.Port))); err != nil {
			return nil, &Error{Code: CodeTargetBlocked, Cause: err}
		}
	}
	tcp, err := dial(ctx, rule, targets)
	if err != nil {
		return nil, err
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		tcp.Close()
		return nil, notSent(plain(err))
	}
	c := &conn{key: key, tcp: tcp, raw: raw, rw: tcp, born: time.Now()}
	if t.Scheme == "https" {
		if c.rw, err = e.secure(ctx, tcp, t.Host); err != nil {
			tcp.Close()
			return nil, err
		}
	}
	if err := c.rw.SetDeadline(t.deadline); err != nil {
		tcp.Close()
		return nil, notSent(plain(err))
	}
	c.in = &limitedReader{r: c.rw}
	c.br = bufio.NewReader(c.in)
	return c, nil
}

func (e *Executor) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := e.resolve(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	return addrs, err
}

// dial tries the addresses in the resolver's order; each but the last gets an
// equal share of the time.
func dial(ctx context.Context, rule dialrule.Rule, targets []netip.AddrPort) (*net.TCPConn, error) {
	until := time.Now().Add(dialTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	var failed error
	for i, ap := range targets {
		share := time.Until(until) / time.Duration(len(targets)-i)
		d := net.Dialer{Timeout: max(share, time.Millisecond), ControlContext: rule.Control}
		c, err := d.DialContext(ctx, "tcp", ap.String())
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		if refusal, ok := errors.AsType[*dialrule.Refusal](err); ok {
			return nil, &Error{Code: CodeTargetBlocked, Cause: refusal}
		}
		failed = notSent(fmt.Errorf("dialling %s: %w", ap, plain(err)))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

func (e *Executor) secure(ctx context.Context, tcp *net.TCPConn, host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	c := tls.Client(tcp, &tls.Config{
		ServerName: strings.TrimSuffix(host, "."),
		RootCAs:    e.roots,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	})
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, notSent(fmt.Errorf("TLS with %s: %w", host, plain(err)))
	}
	return c, nil
}
