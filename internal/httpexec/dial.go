package httpexec

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	h2      *h2           // nil: the connection speaks HTTP/1.1
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
	if c.h2 != nil {
		c.h2.end()
	}
	c.tcp.SetLinger(0)
	c.tcp.Close()
}

// hush ends c if the kernel still holds bytes that it has not sent: they would
// go on leaving for as long as the other side takes them.
func (c *conn) hush() {
	if unsent(c.raw) {
		c.abort()
	}
}

// connect makes a connection to the target, by the way that its credential
// says. Nothing of the request is sent.
func (e *Executor) connect(ctx context.Context, t Target, key poolKey) (*conn, error) {
	ctx, cancel := context.WithDeadline(ctx, t.deadline)
	defer cancel()
	c := &conn{key: key, born: time.Now()}
	var err error
	if t.Way.Proxy != (Proxy{}) {
		c.tcp, c.rw, err = e.tunnel(ctx, t)
	} else {
		rule := dialrule.Rule{Private: t.Private, Plain: t.Scheme == "http" && !t.Insecure, OwnPorts: e.ownPorts}
		c.tcp, err = e.reach(ctx, rule, t.Host, t.Port)
		c.rw = c.tcp
	}
	if err != nil {
		return nil, err
	}
	if err := e.prepare(ctx, c, t); err != nil {
		c.tcp.Close()
		return nil, err
	}
	return c, nil
}

// prepare makes c ready to carry requests.
func (e *Executor) prepare(ctx context.Context, c *conn, t Target) error {
	var err error
	if c.raw, err = c.tcp.SyscallConn(); err != nil {
		return notSent(plain(err))
	}
	second := false
	if t.Scheme == "https" {
		secured, err := e.secure(ctx, c.rw, t, c.key)
		if err != nil {
			return err
		}
		c.rw, second = secured, secured.ConnectionState().NegotiatedProtocol == "h2"
	}
	if err := c.rw.SetDeadline(t.deadline); err != nil {
		return notSent(plain(err))
	}
	c.in = &limitedReader{r: c.rw}
	c.br = bufio.NewReader(c.in)
	if second {
		c.h2 = newH2(c)
	}
	return nil
}

// reach resolves a host once, checks every address, and dials one of those that
// it checked.
func (e *Executor) reach(ctx context.Context, rule dialrule.Rule, host string, port int) (*net.TCPConn, error) {
	addrs, err := e.lookup(ctx, host)
	if err != nil {
		return nil, notSent(fmt.Errorf("looking up %s: %w", host, plain(err)))
	}
	targets := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		targets[i] = netip.AddrPortFrom(a.Unmap(), uint16(port))
		// One bad address among good ones is how rebinding looks: refuse all.
		if err := rule.Check(netip.AddrPortFrom(a, uint16(port))); err != nil {
			return nil, &Error{Code: CodeTargetBlocked, Cause: err}
		}
	}
	return dial(ctx, rule, targets)
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
