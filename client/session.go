package client

import (
	"context"
	"encoding/json"
	"os"

	"github.com/yett-broker/yett/internal/wire"
)

// Session is the one session of a channel. Its methods may be used by several
// goroutines at once: requests are numbered in the order in which they are
// written, replies may overtake each other.
type Session struct {
	conn   *Conn
	opened SessionResult
	next   int64 // guarded by conn.writeMu
}

// Operation is the state of one action. Result is set when State is completed
// (an HTTPResult, an SSHResult, a CopyResult or a NotSent), Reason when it is denied or
// indeterminate.
type Operation struct {
	OperationID string          `json:"operation_id"`
	Sequence    int64           `json:"sequence"`
	State       State           `json:"state"`
	Result      json.RawMessage `json:"result,omitempty"`
	Reason      *Reason         `json:"reason,omitempty"`
	Pending     *Pending        `json:"pending"`
	Activity    string          `json:"activity,omitempty"`
}

// OpenSession opens the session of this channel. Without capabilities it is
// active at once and may list and ask; with capabilities it is pending until a
// person has decided (see Wait).
func (c *Conn) OpenSession(ctx context.Context, capabilities []string, purpose string) (*Session, error) {
	return c.OpenSessionPassing(ctx, nil, capabilities, purpose)
}

// OpenSessionPassing is OpenSession for the shim: it passes a copy of the
// socket that an agent speaks on, so that the broker can ask the kernel who
// made it. stdio may be nil.
func (c *Conn) OpenSessionPassing(ctx context.Context, stdio *os.File, capabilities []string, purpose string) (*Session, error) {
	if capabilities == nil {
		capabilities = []string{}
	}
	s := &Session{conn: c, next: 1}
	open := wire.SessionOpen{Nonce: c.hello.Nonce, Capabilities: capabilities, Purpose: purpose}
	if err := c.roundTrip(ctx, wire.MethodSessionOpen, func() any { return open }, nil, stdio, &s.opened); err != nil {
		return nil, err
	}
	return s, nil
}

// ID returns the session's id.
func (s *Session) ID() string { return s.opened.SessionID }

// Opened returns the state in which the session was opened.
func (s *Session) Opened() SessionResult { return s.opened }

// Wait waits for a decision and returns the state of the session.
func (s *Session) Wait(ctx context.Context, waitMS int64) (SessionResult, error) {
	var r SessionResult
	err := s.call(ctx, wire.MethodSessionWait, func(n int64) any {
		return wire.SessionWait{SessionID: s.ID(), Sequence: n, WaitMS: waitMS}
	}, &r)
	return r, err
}

// RequestAccess asks for more capabilities.
func (s *Session) RequestAccess(ctx context.Context, capabilities []string, purpose string, waitMS int64) (SessionResult, error) {
	var r SessionResult
	err := s.call(ctx, wire.MethodAccessRequest, func(n int64) any {
		return wire.AccessRequest{SessionID: s.ID(), Sequence: n, Capabilities: capabilities, Purpose: purpose, WaitMS: waitMS}
	}, &r)
	return r, err
}

// ListAccess lists what may be asked for and what is granted.
func (s *Session) ListAccess(ctx context.Context) (AccessListResult, error) {
	var r AccessListResult
	err := s.call(ctx, wire.MethodAccessList, func(n int64) any {
		return wire.Envelope{SessionID: s.ID(), Sequence: n}
	}, &r)
	return r, err
}

// Do asks for one action. With a key, a repeat by the same process returns the
// first operation instead of acting again.
func (s *Session) Do(ctx context.Context, capability string, a Action, key string, waitMS int64) (Operation, error) {
	var r Operation
	err := s.call(ctx, wire.MethodActionRequest, func(n int64) any {
		return wire.ActionRequest{SessionID: s.ID(), Sequence: n, Capability: capability, Action: &a, IdempotencyKey: key, WaitMS: waitMS}
	}, &r)
	return r, err
}

// Get returns the state of an operation, waiting for its end. A decision that
// a person has made meanwhile takes effect with this call.
func (s *Session) Get(ctx context.Context, operationID string, waitMS int64) (Operation, error) {
	var r Operation
	err := s.call(ctx, wire.MethodOperationGet, func(n int64) any {
		return wire.OperationGet{SessionID: s.ID(), Sequence: n, OperationID: operationID, WaitMS: waitMS}
	}, &r)
	return r, err
}

// Body reads at most limit bytes of a body of this session from offset on.
func (s *Session) Body(ctx context.Context, ref string, offset, limit int64) (BodyResult, error) {
	var r BodyResult
	err := s.call(ctx, wire.MethodOperationBody, func(n int64) any {
		return wire.OperationBody{SessionID: s.ID(), Sequence: n, BodyRef: ref, Offset: offset, Limit: limit}
	}, &r)
	return r, err
}

// Search says what to look for in a body: lines that match Grep, an RE2
// expression, or the values that JSON leads to, a JSON pointer in which a step
// of * is every element. One of them is set.
type Search struct {
	Grep    *string
	Context *int // lines around a match; nil: none
	Matches *int // how many are enough; nil: 100
	JSON    *string
}

// SearchBody looks through a body of this session, by lines from offset on. The
// bytes of the result are what was found, at most limit of them.
func (s *Session) SearchBody(ctx context.Context, ref string, search Search, offset, limit int64) (BodyResult, error) {
	var r BodyResult
	err := s.call(ctx, wire.MethodOperationBody, func(n int64) any {
		return wire.OperationBody{SessionID: s.ID(), Sequence: n, BodyRef: ref, Offset: offset, Limit: limit,
			Grep: search.Grep, Context: search.Context, Matches: search.Matches, JSON: search.JSON}
	}, &r)
	return r, err
}

// Close ends the session; the channel stays.
func (s *Session) Close(ctx context.Context) error {
	return s.call(ctx, wire.MethodSessionClose, func(n int64) any {
		return wire.Envelope{SessionID: s.ID(), Sequence: n}
	}, nil)
}

func (s *Session) call(ctx context.Context, method string, params func(number int64) any, result any) error {
	return s.conn.roundTrip(ctx, method, func() any { return params(s.next) }, func() { s.next++ }, nil, result)
}
