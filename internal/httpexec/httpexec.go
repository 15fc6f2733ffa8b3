// Package httpexec carries out one HTTP action with a credential that it is
// lent for the length of one call.
//
// It trusts its caller (the broker) for the target and the credential, and it
// trusts nobody else: the action was written by an agent, names are resolved
// by whoever answers, and an upstream may send back what it was sent. So
//
//   - one call of Do puts at most one request on the wire. Nothing is retried
//     and no redirect is followed; a 3xx is an answer like any other;
//   - the address that was checked is the address that is dialled, and no
//     proxy is taken from the environment. A proxy that the access file names
//     gets a CONNECT and looks the name up itself;
//   - echoes of the credential are replaced in what is handed back, and
//     response headers that carry credentials are dropped. Literal matching
//     cannot beat every encoding that an upstream may think of: it is a second
//     line behind access rules that leave echoing paths out.
//
// The wire is HTTP/1.1, or HTTP/2 where TLS agrees on it, with one request at a
// time on connections that this package dials itself: net/http's Transport
// retries on its own judgement and keeps header values as strings that cannot be
// wiped. Its response parser (http.ReadResponse) is used as it is, and so are the
// frames of golang.org/x/net/http2.
//
// A body is decoded and scrubbed on its way to whoever keeps it, so that only a
// small window of it lies in memory.
package httpexec

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

const (
	// DefaultTimeout bounds one call of Do where the target says nothing.
	DefaultTimeout = 60 * time.Second
	// DefaultMaxBody is the cap on decoded bytes where the target says nothing.
	DefaultMaxBody = 64 << 20
)

// Target is the one place that a capability's credential may go to.
type Target struct {
	Scheme   string        // "https", or "http" for loopback or with Insecure
	Host     string        // name or address, without port, lower case
	Port     int           // 0: the scheme's own
	Private  bool          // private and loopback ranges are allowed: the access file names them (http to loopback needs this)
	Insecure bool          // plain http beyond loopback is allowed: the access file says so
	Way      Way           // what the connection is like
	Timeout  time.Duration // over everything; 0: DefaultTimeout
	MaxBody  int64         // decoded bytes; 0: DefaultMaxBody
	Session  string        // connections are never shared between sessions; see CloseSession
	Body     io.Writer     // takes the body as it comes, decoded and scrubbed; nil: it is in the Result
	Begin    func() error  // asked right before the first byte; an error means that nothing may leave; may be nil
	Sent     func()        // called once the kernel has the whole request; may be nil

	// Quiet, when it is done, lets not one byte of the request leave any more: if
	// the kernel still holds some, the connection is reset. Otherwise the answer is
	// awaited as before. It is done after Sent only. May be nil.
	Quiet context.Context

	deadline time.Time // of the call
}

// Result is an answer, after scrubbing.
type Result struct {
	Status    int
	Headers   []action.Header // sorted by name; credential-bearing and hop-by-hop ones dropped
	Body      []byte          // decoded and scrubbed, where the target has no Body
	Truncated bool            // the body is not all of it: it passed the cap, or the connection broke or timed out
	Partial   string          // why it is not
	Redacted  int             // echoes of the credential that were replaced
	Withheld  string          // why there is no body although the upstream sent one
	Lost      error           // what the target's Body said; the rest was not read
}

// Options are what an Executor needs from its surroundings.
type Options struct {
	// OwnPorts returns the ports that Yett itself listens on; they are never
	// dialled on an address of this machine. Required.
	OwnPorts func() []int
	// Resolve looks a name up; nil is the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Roots are the certificate authorities; nil is the system's.
	Roots *x509.CertPool
}

// Executor carries out HTTP actions. It may be used by many goroutines.
type Executor struct {
	ownPorts func() []int
	resolve  func(ctx context.Context, host string) ([]netip.Addr, error)
	roots    *x509.CertPool
	pool     *pool
}

// New returns an Executor. It panics without OwnPorts: an executor that does
// not know which ports are Yett's own would let an agent reach the console.
func New(o Options) *Executor {
	if o.OwnPorts == nil {
		panic("httpexec: Options.OwnPorts is required")
	}
	e := &Executor{ownPorts: o.OwnPorts, resolve: o.Resolve, roots: o.Roots, pool: newPool()}
	if e.resolve == nil {
		e.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return e
}

// CloseSession closes the kept connections of a session; one that is in use is
// closed after its call. A call in progress is ended through its context.
func (e *Executor) CloseSession(key string) { e.pool.closeSession(key) }

// Close closes every kept connection; none is kept afterwards.
func (e *Executor) Close() error {
	e.pool.close()
	return nil
}

// Do sends r to t with c and returns the answer. Every error is an *Error,
// which says whether the request may have arrived.
func (e *Executor) Do(ctx context.Context, t Target, c Credential, r action.HTTP) (*Result, error) {
	t, err := t.normal()
	if err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, notSent(err)
	}
	if err := checkRequest(r, c); err != nil {
		return nil, err
	}
	w, err := compose(t, c, r, time.Now())
	if err != nil {
		return nil, err
	}
	defer w.wipe()
	t.deadline = time.Now().Add(t.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(t.deadline) {
		t.deadline = d
	}
	if err := ctx.Err(); err != nil {
		return nil, notSent(plain(err))
	}
	safe := isSafe(r.Method)
	key := e.pool.key(t, c)
	var cn *conn
	if safe {
		cn = e.pool.take(key, t.deadline)
	}
	if cn == nil {
		if cn, err = e.connect(ctx, t, key); err != nil {
			return nil, err
		}
		e.pool.adopt(cn)
	}
	s := newScrubber(w.echoes...)
	defer s.wipe()
	res, keep, err := cn.exchange(ctx, t, w, s)
	if err != nil {
		cn.abort()
	}
	e.pool.give(cn, keep && safe && err == nil)
	return res, err
}

// isSafe names the methods of RFC 9110 section 9.2.1 that an agent may use;
// only these may go over a connection that was used before.
func isSafe(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS"
}
