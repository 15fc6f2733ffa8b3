package sshexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"
)

// link is one authenticated connection to a host that proved itself, directly
// or through others. Closing it closes the one connection that leaves this
// machine, and with it everything that runs inside.
type link struct {
	ssh.Conn
	traffic *traffic
	hostKey string   // what the host proved itself by
	bottom  net.Conn // the connection from this machine
	outer   *traffic // what is written to bottom
}

func (l *link) Close() error { return l.bottom.Close() }

// traffic is a connection that knows when it last heard from the other end.
type traffic struct {
	net.Conn
	begin time.Time
	heard atomic.Int64 // time.Duration since begin
	muted atomic.Bool  // what is written goes nowhere
	ack   func()       // has what came acknowledged at once
}

func (t *traffic) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if n > 0 {
		t.ack()
		t.heard.Store(int64(time.Since(t.begin)))
	}
	return n, err
}

// silence is how long nothing has come.
func (t *traffic) silence() time.Duration {
	return time.Since(t.begin) - time.Duration(t.heard.Load())
}

// connect makes a new connection to t: it proves every host of the way, from the
// first on, and authenticates at each with its own key and nothing else. Nothing
// is dialled before all of the way makes sense. Nothing but that was sent when
// it returns, and ctx does not hold the connection any more.
func (e *Executor) connect(ctx context.Context, t Target, s ssh.Signer) (*link, error) {
	way, fail := t.way(s)
	if fail != nil {
		return nil, fail
	}
	l, fail := e.reach(ctx, way, t.DialTimeout, t.HandshakeTimeout)
	if fail != nil {
		return nil, fail
	}
	return l, nil
}

// reach connects to the last host of a way.
func (e *Executor) reach(ctx context.Context, way []hop, dialTime, handshakeTime time.Duration) (*link, *Error) {
	conn, fail := e.dial(ctx, way[0], dialTime)
	if fail != nil {
		return nil, fail.at(way[0])
	}
	bottom := conn
	var l *link
	var outer *traffic
	for i, h := range way {
		if i > 0 {
			if conn, fail = l.onward(ctx, h, dialTime); fail != nil {
				bottom.Close()
				return nil, fail.at(way[i-1])
			}
		}
		fail = within(ctx, handshakeTime, "no complete handshake", bottom, func() (err error) {
			l, err = handshake(conn, h)
			return err
		})
		if fail != nil {
			bottom.Close()
			return nil, fail.at(h)
		}
		if l.bottom = bottom; i == 0 {
			outer = l.traffic
		}
		l.outer = outer
	}
	return l, nil
}

// within does one step of connecting under a deadline of its own.
//
// ssh.ClientConfig.Timeout ends with the TCP connection, so the deadline is kept
// here: when it passes, or when the caller gives up, the connection from this
// machine is closed, which ends every read and write on it and inside of it.
func within(ctx context.Context, limit time.Duration, missing string, bottom net.Conn, step func() error) *Error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%s within %s: %w", missing, limit, context.DeadlineExceeded))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { bottom.Close() })
	defer stop()
	if err := step(); err != nil {
		return refused(ctx, err)
	}
	if !stop() { // ctx has ended, and the connection with it
		return &Error{Code: CodeUpstream, Cause: context.Cause(ctx)}
	}
	return nil
}

// authError is a failure of authentication, as opposed to a connection that
// broke meanwhile. It names the algorithms: with RSA these are what host and
// key most often disagree about.
type authError struct {
	signatures []string
	err        error
}

func (e *authError) Error() string {
	return fmt.Sprintf("authenticating with the one key (signatures: %s): %v", strings.Join(e.signatures, ", "), e.err)
}

func (e *authError) Unwrap() error { return e.err }

// handshake proves the host, then authenticates with its key and nothing else.
func handshake(conn net.Conn, h hop) (*link, error) {
	l := &link{traffic: &traffic{Conn: conn, begin: time.Now(), ack: promptly(conn)}, bottom: conn}
	l.outer = l.traffic
	offer := &offer{}
	c, chans, reqs, err := ssh.NewClientConn(l.traffic, h.address, &ssh.ClientConfig{
		User:         h.user,
		Auth:         []ssh.AuthMethod{ssh.PublicKeys(eachAlgorithm(h.signer)...)},
		AuthCallback: offer.next,
		HostKeyCallback: func(_ string, _ net.Addr, presented ssh.PublicKey) error {
			l.hostKey = describe(presented)
			return h.trust.judge(presented, time.Now())
		},
		HostKeyAlgorithms: h.trust.algorithms(),
		ClientVersion:     "SSH-2.0-Yett",
	})
	if err != nil {
		if offer.answered && !brokenOff(err) {
			err = &authError{signatures: algorithmsOf(h.signer), err: err}
		}
		return nil, err
	}
	// The host may ask for things of its own, such as channels to an agent or
	// a display: it gets none.
	go ssh.DiscardRequests(reqs)
	go func() {
		for nc := range chans {
			nc.Reject(ssh.Prohibited, "not offered")
		}
	}()
	l.Conn = c
	return l, nil
}

// offer follows the host's answers to the one key that it is offered.
type offer struct{ answered bool }

func (o *offer) next(c *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
	const method = "publickey"
	switch {
	case slices.Contains(c.PartialSuccessMethods, method):
		o.answered = true
		return nil, fmt.Errorf("the host wants more than the key: %q", c.AllowedMethods)
	case slices.Contains(c.TriedMethods, method):
		o.answered = true
	case !slices.Contains(c.AllowedMethods, method):
		o.answered = true
		return nil, fmt.Errorf("the host takes no keys, only %q", c.AllowedMethods)
	}
	return nil, nil // what is left of ClientConfig.Auth
}

func brokenOff(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &ne)
}

// refused tells why there is no session. No command was sent yet.
func refused(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return &Error{Code: CodeUpstream, Cause: context.Cause(ctx)}
	}
	e := &Error{Code: CodeUpstream, Cause: legible(err)}
	var key *HostKeyError
	var none *ssh.AlgorithmNegotiationError
	var auth *authError
	switch {
	case errors.As(err, &key):
		e.Code, e.Cause = CodeHostKey, key
	case errors.As(err, &none) && none.What == "host key":
		e.Code = CodeHostKey
		e.Cause = legible(fmt.Errorf("the host has no key of a listed kind: listed %q, it has %q",
			none.SupportedAlgorithms, none.RequestedAlgorithms))
	case errors.As(err, &auth):
		e.Code = CodeAuth
	}
	return e
}

// hostText is an error whose text may contain words of the host.
type hostText struct {
	text string
	err  error
}

func (h *hostText) Error() string { return h.text }
func (h *hostText) Unwrap() error { return h.err }

// legible caps the text of err and replaces what is not printable.
func legible(err error) error {
	const limit = 400
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, err.Error())
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return &hostText{text: text, err: err}
}
