// Package client speaks to a running Yett broker over its local socket: for
// native programs that ask for actions without MCP, and for Yett's own shim
// and command line.
//
//	conn, err := client.Dial(ctx, client.Options{Program: "nightly-report", Version: "1.4", Role: client.RoleNative})
//	session, err := conn.OpenSession(ctx, []string{"http:billing.read"}, "the nightly report")
//	state, err := session.Wait(ctx, 50_000) // until a person has decided
//	op, err := session.Do(ctx, "http:billing.read", client.Action{Method: &get, Path: &path}, "", 50_000)
//
// The package trusts the broker only after it has proven itself: the socket
// lies where the contract says, its owner is this account, and what is read
// was written by the process that listens (package endpoint). Whoever links
// this package is the caller in the broker's eyes; nothing here proves more
// than the kernel does.
//
// A broker that cannot be used is an *UnavailableError, whose Cause tells the
// states apart: nothing there, a leftover, starting, stopped or silent, a path
// that this program may not reach, and somebody else in its place. Locked,
// quarantined and protocol_unsupported are *Error values of the broker. None of
// them ends anything for good: dial again later, and open a new session, which
// needs a new decision. Nothing here starts a broker.
//
// The bytes on the socket are described by docs/protocol.md: JSON-RPC 2.0, one
// message a line. Refusals are *Error values with a code, a sentence for the
// program and a next step for the person. Nothing is ever sent twice: when the
// channel ends under a call, the error is a *ClosedError that says whether the
// request had been sent.
package client

import (
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// Roles that a program may claim. RoleShim is checked by the broker.
const (
	RoleShim   = wire.RoleShim
	RoleNative = wire.RoleNative
	RoleCLI    = wire.RoleCLI
)

// MaxWaitMS is the longest wait_ms that the broker accepts.
const MaxWaitMS = wire.MaxWaitMS

// The messages of the socket.
type (
	// Error is a refusal of the broker; compare codes with errors.Is and
	// &Error{Code: …}.
	Error = wire.Error
	// Reason says why an operation was denied.
	Reason = wire.Reason
	// Pending points at the card that a person must decide.
	Pending = wire.Pending
	// Action is one HTTP or SSH action.
	Action = wire.Action
	// Query maps query names to values.
	Query = wire.Query
	// HelloResult is what the broker answered to the greeting.
	HelloResult = wire.HelloResult
	// SessionResult is the state of a session.
	SessionResult = wire.SessionResult
	// AccessListResult is what may be asked for and what is granted.
	AccessListResult = wire.AccessListResult
	// Access is one capability in an AccessListResult.
	Access = wire.Access
	// BodyResult is a piece of a body.
	BodyResult = wire.OperationBodyResult
	// HTTPResult is the result of a completed HTTP action.
	HTTPResult = wire.HTTPResult
	// SSHResult is the result of a completed SSH action.
	SSHResult = wire.SSHResult
	// CopyResult is the result of a completed copy of a file.
	CopyResult = wire.CopyResult
	// NotSent is the result of an action that provably never left.
	NotSent = wire.NotSent
	// State is the state of an operation.
	State = action.State
	// UnavailableError is a broker that was not reached or not proven.
	UnavailableError = endpoint.UnavailableError
	// Cause is why a broker is unavailable.
	Cause = endpoint.Cause
)

// Causes of an UnavailableError.
const (
	NotRunning   = endpoint.NotRunning   // there is no socket
	Stale        = endpoint.Stale        // a broker has ended and left its socket
	Starting     = endpoint.Starting     // a service manager is starting it
	Forbidden    = endpoint.Forbidden    // this program may not reach the socket
	Unsafe       = endpoint.Unsafe       // the way to the socket is open to others, or not as the contract says
	NotAnswering = endpoint.NotAnswering // it is stopped or silent
	Imposter     = endpoint.Imposter     // whoever listens was not proven to be the broker
)

// States of an operation.
const (
	Queued        = action.Queued
	Executing     = action.Executing
	Completed     = action.Completed
	Denied        = action.Denied
	Indeterminate = action.Indeterminate
)

// Options says who dials. All of it is claimed and shown as such.
type Options struct {
	Program string
	Version string
	Role    string // RoleNative when empty
	Labels  map[string]string

	// Stable asks for the part of the protocol that never changes, which
	// reaches a broker of any release: it can be asked for its status and
	// stopped, by RoleCLI, and nothing else.
	Stable bool
}

// ClosedError reports that the channel ended before a reply came. When Sent is
// true the request may have been carried out.
type ClosedError struct {
	Sent  bool
	Cause error
}

func (e *ClosedError) Error() string {
	if e.Sent {
		return "the channel to the broker ended before it answered: " + e.Cause.Error()
	}
	return "the channel to the broker has ended: " + e.Cause.Error()
}

func (e *ClosedError) Unwrap() error { return e.Cause }
