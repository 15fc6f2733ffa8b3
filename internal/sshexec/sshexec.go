// Package sshexec performs one SSH action: a command, or the copy of one file.
// The signers are passed in for the length of one call; the package knows no
// vault and judges no access. Between calls it keeps nothing but connections,
// each for one session, place and key, and used by one call at a time.
//
// It trusts what the access file says of the host (address, user, host keys)
// and nobody else. The name service may lie: an address is resolved once,
// judged, and dialled as judged. The host is untrusted until it has proved one
// of the listed keys, or a certificate of a listed authority, and its output is
// untrusted always: it is counted, capped and handed on as bytes. A host that is
// reached through others is proved like any other, inside of what they carry:
// a jump host sees ciphertext. Every host gets the signature of its own key and
// of no other; no agent, and no channel of its own.
package sshexec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
)

// Codes of Error.
const (
	CodeTargetBlocked = "target_blocked" // the address may not be dialled
	CodeHostKey       = "host_key"       // the host did not prove a listed key
	CodeAuth          = "auth"           // the host did not take the key
	CodeUpstream      = "upstream"       // no host, a host that fails, or time ran out
	CodeInternal      = "internal"       // the target makes no sense
)

// Limits of a Target that names none of its own.
const (
	DefaultDialTimeout      = 10 * time.Second
	DefaultHandshakeTimeout = 15 * time.Second
	DefaultRunTimeout       = 60 * time.Second
	DefaultKeepalive        = 10 * time.Second
	DefaultMaxOutput        = 10 << 20
)

// TailOutput is how much of the end of a truncated stream is kept.
const TailOutput = 64 << 10

// Target is where a command runs and within which limits. A zero limit means
// the default.
type Target struct {
	Address   string   // host:port
	User      string   // account on the host
	HostKeys  []string // authorized-key lines without options; exactly these are accepted
	HostCAs   []string // likewise: keys whose certificates for one of HostNames are accepted
	HostNames []string // none: the host of Address
	Revoked   []string // keys that are never accepted, of hosts and of authorities
	Private   bool     // loopback and private ranges are named by the access file
	Via       []Hop    // what leads to it; only the first of them is dialled from here

	Session string // whose action it is: its connections serve nobody else; empty: none is kept

	DialTimeout      time.Duration // name resolution and connecting
	HandshakeTimeout time.Duration // key exchange, authentication, opening the session
	RunTimeout       time.Duration // the command, unless the action brings a limit of its own
	Keepalive        time.Duration // asked this often; silence for three of them ends the call
	MaxOutput        int64         // bytes kept of each stream

	Begin func() error // asked right before the command leaves; an error means that it may not; may be nil
	Sent  func()       // called once the command and all of its input have left; may be nil

	// Quiet, when it is done, lets not one byte leave any more, while the answer
	// to what has left is still awaited until the call's own context ends. May be nil.
	Quiet context.Context
}

// Hop is a host on the way to a target, with the key that it lets in.
type Hop struct {
	Name                                  string // what errors call it
	Address, User                         string
	HostKeys, HostCAs, HostNames, Revoked []string
	Private                               bool // counts where this machine dials it
	Signer                                ssh.Signer
}

// Result is what came of a command that the host began to run.
type Result struct {
	Exit            Exit
	Stdout          []byte
	Stderr          []byte
	StdoutTruncated bool // more came than MaxOutput
	StderrTruncated bool
	StdoutTotal     int64 // bytes that came
	StderrTotal     int64
	StdoutTail      []byte // of a truncated stream: its end, at most TailOutput bytes
	StderrTail      []byte
	LeftOpen        bool   // a process in the background still held a stream; what it writes later is lost
	HostKey         string // what the host proved itself by: type and SHA-256 fingerprint
}

// Exit is how the command ended: exactly one of the three. Unknown is not a
// failure: the command may have done all of its work.
type Exit struct {
	Status  *int   `json:"status,omitempty"`
	Signal  string `json:"signal,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
}

// Error is why there is no complete result. MaybeSent tells that the command
// may have run, so that the outcome is unknown, or that a copy may have changed
// something on the host.
type Error struct {
	Code      string
	MaybeSent bool
	Hop       string // the jump host that it failed at; empty: the target itself
	Cause     error
}

func (e *Error) Error() string {
	if e.MaybeSent {
		return "outcome unknown: " + e.Cause.Error()
	}
	return e.Cause.Error()
}

func (e *Error) Unwrap() error { return e.Cause }

// Options fix what holds for all calls of an Executor.
type Options struct {
	// OwnPorts returns the ports where Yett itself listens; they are never
	// dialled on an address of this machine. Required.
	OwnPorts func() []int
	// Resolve looks a name up; nil is the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Executor performs SSH actions. It is safe for concurrent use.
type Executor struct {
	ownPorts func() []int
	resolve  func(ctx context.Context, host string) ([]netip.Addr, error)
	kept     *pool
}

// New returns an Executor. It panics without OwnPorts, which is a fault of the
// program.
func New(o Options) *Executor {
	if o.OwnPorts == nil {
		panic("sshexec: Options.OwnPorts is required")
	}
	e := &Executor{ownPorts: o.OwnPorts, resolve: o.Resolve, kept: newPool()}
	if e.resolve == nil {
		e.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return e
}

// Do runs r on t, authenticated by s alone. Every error is an *Error. An error
// with MaybeSent comes with a Result whose Exit is unknown when output had
// come before. A command whose end the host did not tell is no error: its
// Exit is Unknown.
func (e *Executor) Do(ctx context.Context, t Target, s ssh.Signer, r action.SSH) (*Result, error) {
	t, err := t.complete()
	if err != nil {
		return nil, &Error{Code: CodeInternal, Cause: err}
	}
	l, ch, reqs, err := e.session(ctx, t, s)
	if err != nil {
		return nil, err
	}
	res, clean, err := l.run(ctx, ch, reqs, t, r)
	e.kept.give(l, clean)
	if res != nil {
		res.HostKey = l.hostKey
	}
	return res, err
}

// complete fills in the limits that t leaves open.
func (t Target) complete() (Target, error) {
	if t.User == "" {
		return t, errors.New("target names no user")
	}
	for _, limit := range []struct {
		name     string
		value    *time.Duration
		fallback time.Duration
	}{
		{"dial timeout", &t.DialTimeout, DefaultDialTimeout},
		{"handshake timeout", &t.HandshakeTimeout, DefaultHandshakeTimeout},
		{"run timeout", &t.RunTimeout, DefaultRunTimeout},
		{"keepalive", &t.Keepalive, DefaultKeepalive},
	} {
		if *limit.value < 0 {
			return t, fmt.Errorf("%s is negative", limit.name)
		}
		if *limit.value == 0 {
			*limit.value = limit.fallback
		}
	}
	if t.MaxOutput < 0 {
		return t, errors.New("output limit is negative")
	}
	if t.MaxOutput == 0 {
		t.MaxOutput = DefaultMaxOutput
	}
	if t.Begin == nil {
		t.Begin = func() error { return nil }
	}
	if t.Sent == nil {
		t.Sent = func() {}
	}
	if t.Quiet == nil {
		t.Quiet = context.Background()
	}
	return t, nil
}
