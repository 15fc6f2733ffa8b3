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

// link is one authenticated connection.
type link struct {
	ssh.Conn
	traffic *traffic
}

// traffic is a connection that knows when it last heard from the other end.
type traffic struct {
	net.Conn
	begin time.Time
	heard atomic.Int64 // time.Duration since begin
}

func (t *traffic) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if n > 0 {
		t.heard.Store(int64(time.Since(t.begin)))
	}
	return n, err
}

// silence is how long nothing has come.
func (t *traffic) silence() time.Duration {
	return time.Since(t.begin) - time.Duration(t.heard.Load())
}

// connect makes a new connection to t, proves the host and authenticates with s
// and nothing else. Nothing but that was sent when it returns, and ctx does not
// hold the connection any more.
//
// ssh.ClientConfig.Timeout ends with the TCP connection, so the deadline of
// the handshake is kept here: when it passes, or when the caller gives up, the
// connection is closed, which ends every read and write on it.
func (e *Executor) connect(ctx context.Context, t Target, s ssh.Signer) (*link, error) {
	keys, err := parseHostKeys(t.HostKeys)
	if err != nil {
		return nil, &Error{Code: CodeHostKey, Cause: err}
	}
	signer, err := onlyModern(s)
	if err != nil {
		return nil, &Error{Code: CodeAuth, Cause: err}
	}
	conn, err := e.dial(ctx, t)
	if err != nil {
		return nil, err
	}
	hctx, cancel := context.WithTimeoutCause(ctx, t.HandshakeTimeout,
		fmt.Errorf("no complete handshake within %s: %w", t.HandshakeTimeout, context.DeadlineExceeded))
	defer cancel()
	stop := context.AfterFunc(hctx, func() { conn.Close() })
	defer stop()
	l, err := handshake(conn, t, keys, signer)
	if err != nil {
		conn.Close()
		return nil, refused(hctx, err)
	}
	if !stop() { // hctx has ended, and the connection with it
		l.Close()
		return nil, &Error{Code: CodeUpstream, Cause: context.Cause(hctx)}
	}
	return l, nil
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

// handshake proves the host, then authenticates with s and nothing else.
func handshake(conn net.Conn, t Target, keys []ssh.PublicKey, s ssh.Signer) (*link, error) {
	tc := &traffic{Conn: conn, begin: time.Now()}
	offer := &offer{}
	c, chans, reqs, err := ssh.NewClientConn(tc, t.Address, &ssh.ClientConfig{
		User:              t.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(eachAlgorithm(s)...)},
		AuthCallback:      offer.next,
		HostKeyCallback:   exactly(keys),
		HostKeyAlgorithms: hostKeyAlgorithms(keys),
		ClientVersion:     "SSH-2.0-Yett",
	})
	if err != nil {
		if offer.answered && !brokenOff(err) {
			err = &authError{signatures: algorithmsOf(s), err: err}
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
	return &link{Conn: c, traffic: tc}, nil
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
