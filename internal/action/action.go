// Package action holds the values that every room shares: who asks (Caller),
// what is asked (Request), and what became of it (State, Outcome). It does no
// I/O, keeps no secret and judges nothing.
//
// A request has exactly one canonical form. It is made once, by NewHTTP, NewSSH
// or NewCopy, and that form is what the access rules match, what a card shows,
// what the ledger digests and what an executor sends.
package action

import (
	"crypto/sha256"
	"encoding/json"
	"time"
)

// State is the state of an operation. An operation has exactly one.
type State string

const (
	Queued        State = "queued"        // waits for a person or for an equal action
	Executing     State = "executing"     // its intent is durable; it may have been sent
	Completed     State = "completed"     // its outcome was learned
	Denied        State = "denied"        // it was not executed and will not be
	Indeterminate State = "indeterminate" // it may have happened; nobody knows
)

// Final reports whether no further state can follow.
func (s State) Final() bool { return s == Completed || s == Denied || s == Indeterminate }

// Unit is what one authorization covers.
type Unit string

const (
	UnitProcess   Unit = "process"   // this one process on this one channel
	UnitOperation Unit = "operation" // one action
)

// Request is one action on one capability, in canonical form: exactly one of
// HTTP, SSH and Copy is set.
type Request struct {
	Capability string `json:"capability"`
	HTTP       *HTTP  `json:"http,omitempty"`
	SSH        *SSH   `json:"ssh,omitempty"`
	Copy       *Copy  `json:"ssh_copy,omitempty"`
}

// Kind says which kind of action a request or a capability is.
type Kind string

const (
	KindHTTP Kind = "http"
	KindSSH  Kind = "ssh"
	KindCopy Kind = "ssh-copy"
)

// Kind is empty for a request that does not set exactly one action.
func (r Request) Kind() Kind {
	switch {
	case r.HTTP != nil && r.SSH == nil && r.Copy == nil:
		return KindHTTP
	case r.SSH != nil && r.HTTP == nil && r.Copy == nil:
		return KindSSH
	case r.Copy != nil && r.HTTP == nil && r.SSH == nil:
		return KindCopy
	}
	return ""
}

// HTTP is a canonical HTTP action. Path and Query are sent byte for byte.
type HTTP struct {
	Method  string   `json:"method"`
	Path    string   `json:"path"`            // escaped, begins with '/'
	Query   string   `json:"query,omitempty"` // escaped, sorted by name, without '?'
	Headers []Header `json:"headers,omitempty"`
	Body    []byte   `json:"body,omitempty"`
}

// Header is one request header; Name is in canonical MIME form.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SSH is a canonical SSH action.
type SSH struct {
	Command string        `json:"command"` // exactly what the remote shell receives
	Stdin   []byte        `json:"stdin,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"` // 0: the executor's own limit
	PTY     bool          `json:"pty,omitempty"`        // the command gets a terminal
	Env     []Variable    `json:"env,omitempty"`        // sorted by name
}

// Variable is one variable of a command's environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Canonical returns the one serialization of r that is digested and recorded.
// Struct order is fixed and there are no maps, so equal requests have equal
// bytes.
func (r Request) Canonical() []byte {
	b, err := json.Marshal(r)
	if err != nil { // strings, bytes and integers only: it cannot fail
		panic("action: canonical form: " + err.Error())
	}
	return b
}

// Digest is SHA-256 over the canonical form.
func (r Request) Digest() [32]byte { return sha256.Sum256(r.Canonical()) }

// Unsafe reports whether repeating the request may repeat an effect: every
// SSH command, every copy to a host, and every HTTP method that RFC 9110 section
// 9.2.1 does not call safe.
func (r Request) Unsafe() bool {
	if r.Copy != nil && r.SSH == nil && r.HTTP == nil {
		return r.Copy.Direction != Down
	}
	if r.HTTP == nil {
		return true
	}
	switch r.HTTP.Method {
	case "GET", "HEAD", "OPTIONS":
		return false
	}
	return true
}

// Refusal is a request that has no canonical form or lies outside what may be
// asked. Code is one of the wire's reason codes or "bad_request".
type Refusal struct {
	Code   string
	Detail string
}

// The codes of a Refusal: what was sent has no meaning, or it has one that
// may never be asked for.
const (
	CodeBadRequest = "bad_request"
	CodeOutside    = "action_outside_capability"
)

func (r *Refusal) Error() string { return r.Detail }
