package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

var timeType = reflect.TypeFor[time.Time]()

// Hello is the first message of a channel, sent once.
type Hello struct {
	ProtocolMin int               `json:"protocol_min"`
	ProtocolMax int               `json:"protocol_max"`
	Program     string            `json:"program"`
	Version     string            `json:"version"`
	Role        string            `json:"role"` // RoleShim, RoleNative or RoleCLI
	Labels      map[string]string `json:"labels,omitempty" wire:"optional"`
}

// Roles that a client may claim in Hello. A claim of RoleShim is checked.
const (
	RoleShim   = "shim"
	RoleNative = "native"
	RoleCLI    = "cli"
)

// HelloResult answers Hello. The nonce opens one session on this channel.
type HelloResult struct {
	Protocol       int    `json:"protocol"`
	BrokerVersion  string `json:"broker_version"`
	BrokerInstance string `json:"broker_instance"`
	ChannelID      string `json:"channel_id"`
	Nonce          string `json:"nonce"`
}

// SessionOpen asks for a session.
type SessionOpen struct {
	Nonce        string   `json:"nonce"`
	Capabilities []string `json:"capabilities"`
	Purpose      string   `json:"purpose,omitempty" wire:"optional"`
}

// Envelope stands in every session-scoped message.
type Envelope struct {
	SessionID string `json:"session_id"`
	Sequence  int64  `json:"sequence"`
}

// AccessRequest asks for more capabilities in a running session.
type AccessRequest struct {
	SessionID    string   `json:"session_id"`
	Sequence     int64    `json:"sequence"`
	Capabilities []string `json:"capabilities"`
	Purpose      string   `json:"purpose,omitempty" wire:"optional"`
	WaitMS       int64    `json:"wait_ms,omitempty" wire:"optional"`
}

// SessionWait asks for the state of the session, waiting for a decision.
type SessionWait struct {
	SessionID string `json:"session_id"`
	Sequence  int64  `json:"sequence"`
	WaitMS    int64  `json:"wait_ms,omitempty" wire:"optional"`
}

// Pending points at the card that a person must decide.
type Pending struct {
	ApprovalID string    `json:"approval_id"`
	ExpiresAt  time.Time `json:"expires_at"`
	ConsoleURL *string   `json:"console_url"` // null while there is no console
	Tag        string    `json:"tag"`         // the two words that the card shows too
}

// SessionResult answers session.open, session.wait and access.request.
type SessionResult struct {
	SessionID    string    `json:"session_id"`
	State        string    `json:"state"` // pending, active or paused
	Capabilities []string  `json:"capabilities"`
	ExpiresAt    time.Time `json:"expires_at"`
	Pending      *Pending  `json:"pending"`
	Reason       *Reason   `json:"reason,omitempty"` // why the last card gave nothing
}

// Access is one capability as access.list shows it.
type Access struct {
	Capability string     `json:"capability"`
	Kind       string     `json:"kind"` // http, ssh or ssh-copy
	Target     string     `json:"target"`
	Methods    []string   `json:"methods,omitempty"`
	Paths      []string   `json:"paths,omitempty"`
	Query      []string   `json:"query,omitempty"`
	Commands   []string   `json:"commands,omitempty"`
	PTY        bool       `json:"pty,omitempty"`       // a command may have a terminal
	Env        []string   `json:"env,omitempty"`       // variables that a command may be given
	Direction  string     `json:"direction,omitempty"` // up, down or both
	Remote     []string   `json:"remote,omitempty"`
	Local      []string   `json:"local,omitempty"`
	MaxSize    int64      `json:"max_size,omitempty"` // of a file, in bytes
	Overwrite  bool       `json:"overwrite,omitempty"`
	Budget     string     `json:"budget,omitempty"`
	Confirm    string     `json:"confirm"`
	Granted    bool       `json:"granted"`
	Until      *time.Time `json:"until,omitempty"` // the end of the grant
	Once       bool       `json:"once,omitempty"`  // the grant covers one action
}

// AccessListResult answers access.list.
type AccessListResult struct {
	Capabilities []Access `json:"capabilities"`
}

// ActionRequest asks for one action.
type ActionRequest struct {
	SessionID      string  `json:"session_id"`
	Sequence       int64   `json:"sequence"`
	Capability     string  `json:"capability"`
	Action         *Action `json:"action"`
	IdempotencyKey string  `json:"idempotency_key,omitempty" wire:"optional"`
	WaitMS         int64   `json:"wait_ms,omitempty" wire:"optional"`
}

// Action has the members of all kinds of action; the capability says which kind
// it must be.
type Action struct {
	Method     *string           `json:"method,omitempty" wire:"optional"`
	Path       *string           `json:"path,omitempty" wire:"optional"`
	Query      Query             `json:"query,omitempty" wire:"optional"`
	Headers    map[string]string `json:"headers,omitempty" wire:"optional"`
	Body       *string           `json:"body,omitempty" wire:"optional"`
	BodyBase64 *string           `json:"body_base64,omitempty" wire:"optional"`
	BodyJSON   json.RawMessage   `json:"body_json,omitempty" wire:"optional"`
	Form       Query             `json:"form,omitempty" wire:"optional"`

	Command   *string  `json:"command,omitempty" wire:"optional"`
	Argv      []string `json:"argv,omitempty" wire:"optional"`
	Stdin     *string  `json:"stdin,omitempty" wire:"optional"`
	TimeoutMS *int64   `json:"timeout_ms,omitempty" wire:"optional"` // ssh and ssh-copy

	StdinBase64 *string `json:"stdin_base64,omitempty" wire:"optional"`
	PTY         *bool   `json:"pty,omitempty" wire:"optional"`

	Env map[string]string `json:"env,omitempty" wire:"optional"`

	Direction *string `json:"direction,omitempty" wire:"optional"`
	Local     *string `json:"local,omitempty" wire:"optional"`
	Remote    *string `json:"remote,omitempty" wire:"optional"`
	Overwrite *bool   `json:"overwrite,omitempty" wire:"optional"`
}

// HTTP returns the action as an HTTP action, or what is wrong with it.
func (a *Action) HTTP() (*action.HTTP, *action.Refusal) {
	switch {
	case a.hasSSH() || a.hasCopy() || a.TimeoutMS != nil:
		return nil, &action.Refusal{Code: CodeBadRequest, Detail: "an http capability takes method, path, query, headers, and one of body, body_base64, body_json and form, as http_request has them"}
	case a.Method == nil:
		return nil, &action.Refusal{Code: CodeBadRequest, Detail: "action: method is missing"}
	case a.Path == nil:
		return nil, &action.Refusal{Code: CodeBadRequest, Detail: "action: path is missing"}
	}
	return action.NewHTTP(action.HTTPInput{Method: *a.Method, Path: *a.Path, Query: a.Query,
		Headers: a.Headers, Body: a.Body, BodyBase64: a.BodyBase64, BodyJSON: a.BodyJSON, Form: a.Form})
}

// SSH returns the action as an SSH action, or what is wrong with it.
func (a *Action) SSH() (*action.SSH, *action.Refusal) {
	if a.hasHTTP() || a.hasCopy() {
		return nil, &action.Refusal{Code: CodeBadRequest, Detail: "an ssh capability takes command or argv, stdin or stdin_base64, env, pty and timeout_ms, as ssh_run has them"}
	}
	return action.NewSSH(action.SSHInput{Command: a.Command, Argv: a.Argv, Stdin: a.Stdin, StdinBase64: a.StdinBase64,
		TimeoutMS: a.TimeoutMS, PTY: a.PTY != nil && *a.PTY, Env: a.Env})
}

// Copy returns the action as a copy of a file, or what is wrong with it.
func (a *Action) Copy() (*action.Copy, *action.Refusal) {
	if a.hasHTTP() || a.hasSSH() {
		return nil, &action.Refusal{Code: CodeBadRequest, Detail: "an ssh-copy capability takes direction, local, remote, overwrite and timeout_ms, as ssh_copy has them"}
	}
	for _, required := range []struct {
		name string
		text *string
	}{{"direction", a.Direction}, {"local", a.Local}, {"remote", a.Remote}} {
		if required.text == nil {
			return nil, &action.Refusal{Code: CodeBadRequest, Detail: "action: " + required.name + " is missing"}
		}
	}
	return action.NewCopy(action.CopyInput{Direction: *a.Direction, Local: *a.Local, Remote: *a.Remote,
		Overwrite: a.Overwrite != nil && *a.Overwrite, TimeoutMS: a.TimeoutMS})
}

func (a *Action) hasHTTP() bool {
	return a.Method != nil || a.Path != nil || a.Query != nil || a.Headers != nil || a.Body != nil || a.BodyBase64 != nil ||
		a.BodyJSON != nil || a.Form != nil
}

func (a *Action) hasSSH() bool {
	return a.Command != nil || a.Argv != nil || a.Stdin != nil || a.StdinBase64 != nil || a.PTY != nil || a.Env != nil
}

func (a *Action) hasCopy() bool {
	return a.Direction != nil || a.Local != nil || a.Remote != nil || a.Overwrite != nil
}

// Of makes the canonical request of a capability's kind, or says what is wrong
// with it.
func (a *Action) Of(kind action.Kind, capability string) (action.Request, *action.Refusal) {
	r := action.Request{Capability: capability}
	var refusal *action.Refusal
	switch kind {
	case action.KindHTTP:
		r.HTTP, refusal = a.HTTP()
	case action.KindSSH:
		r.SSH, refusal = a.SSH()
	case action.KindCopy:
		r.Copy, refusal = a.Copy()
	}
	return r, refusal
}

// Query maps a name to its values: a JSON object of a string or an array of
// strings.
type Query map[string][]string

// UnmarshalJSON accepts a string or an array of strings for each name.
func (q *Query) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*q = make(Query, len(raw))
	for name, v := range raw {
		var one string
		var many []*string
		switch {
		case len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &one) == nil:
			(*q)[name] = []string{one}
		case len(v) > 0 && v[0] == '[' && json.Unmarshal(v, &many) == nil:
			vals := make([]string, len(many))
			for i, m := range many {
				if m == nil {
					return errors.New("query values are strings or arrays of strings")
				}
				vals[i] = *m
			}
			(*q)[name] = vals
		default:
			return errors.New("query values are strings or arrays of strings")
		}
	}
	return nil
}

// OperationGet asks for the state of an operation, waiting for its end.
type OperationGet struct {
	SessionID   string `json:"session_id"`
	Sequence    int64  `json:"sequence"`
	OperationID string `json:"operation_id"`
	WaitMS      int64  `json:"wait_ms,omitempty" wire:"optional"`
}

// OperationResult answers action.request and operation.get. Result is set when
// State is completed (or indeterminate with a partial outcome), Reason when it
// is denied or indeterminate.
type OperationResult struct {
	OperationID string   `json:"operation_id"`
	Sequence    int64    `json:"sequence"`
	State       string   `json:"state"`
	Result      any      `json:"result,omitempty"`
	Reason      *Reason  `json:"reason,omitempty"`
	Pending     *Pending `json:"pending"`
	Activity    string   `json:"activity,omitempty"` // "activity:N", N the intent row
}

// HTTPResult is the result of an HTTP action. It never holds an injected
// header. The body is read by operation.body under BodyRef.
type HTTPResult struct {
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"` // values of a repeated name are joined by ", "
	BodyRef   string            `json:"body_ref"`
	Size      int64             `json:"size"`
	Truncated bool              `json:"truncated"`
	Partial   string            `json:"partial,omitempty"` // why the body is not all of it
	Redacted  int               `json:"redacted"`          // echoes of the credential that were replaced
	Withheld  string            `json:"withheld,omitempty"`
	NotKept   string            `json:"not_kept,omitempty"` // why there is no body_ref
}

// SSHResult is the result of an SSH action. Of a truncated stream the beginning
// lies under its reference, and the end under that of its tail.
type SSHResult struct {
	Exit            SSHExit `json:"exit"`
	StdoutRef       string  `json:"stdout_ref"`
	StdoutSize      int64   `json:"stdout_size"`
	StdoutTruncated bool    `json:"stdout_truncated"`
	StdoutTotal     int64   `json:"stdout_total,omitempty"` // of a truncated one: bytes that came
	StdoutTailRef   string  `json:"stdout_tail_ref,omitempty"`
	StderrRef       string  `json:"stderr_ref"`
	StderrSize      int64   `json:"stderr_size"`
	StderrTruncated bool    `json:"stderr_truncated"`
	StderrTotal     int64   `json:"stderr_total,omitempty"`
	StderrTailRef   string  `json:"stderr_tail_ref,omitempty"`
	LeftOpen        bool    `json:"left_open,omitempty"` // something in the background still held a stream
	NotKept         string  `json:"not_kept,omitempty"`  // why a reference is empty
}

// CopyResult is the result of a copy that was done.
type CopyResult struct {
	Direction string `json:"direction"`
	Local     string `json:"local"`
	Remote    string `json:"remote"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"` // of the bytes that were copied
	Replaced  bool   `json:"replaced"`
}

// SSHExit holds exactly one of its members.
type SSHExit struct {
	Status  *int   `json:"status,omitempty"`
	Signal  string `json:"signal,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
}

// NotSent is the result of an action that was tried and provably never left:
// the name did not resolve, the connection was refused, the host key was not
// the listed one.
type NotSent struct {
	Error    string `json:"error"` // what happened, without any secret
	Sent     bool   `json:"sent"`  // always false
	NextStep string `json:"next_step,omitempty"`
}

// OperationBody reads a piece of a body, or searches in it: with Grep for lines,
// with JSON for values.
type OperationBody struct {
	SessionID string `json:"session_id"`
	Sequence  int64  `json:"sequence"`
	BodyRef   string `json:"body_ref"`
	Offset    int64  `json:"offset"`
	Limit     int64  `json:"limit"`

	Grep    *string `json:"grep,omitempty" wire:"optional"`    // an RE2 expression
	Context *int    `json:"context,omitempty" wire:"optional"` // lines around a match, with Grep
	Matches *int    `json:"matches,omitempty" wire:"optional"` // how many are enough, with Grep
	JSON    *string `json:"json,omitempty" wire:"optional"`    // a JSON pointer; * is every element
}

// OperationBodyResult answers operation.body. Of a search the bytes are what was
// found, eof says that this is everything, and the two last members are there.
type OperationBodyResult struct {
	BytesBase64 []byte `json:"bytes_base64"`
	Size        int64  `json:"size"` // of the whole body, in bytes
	EOF         bool   `json:"eof"`

	Matches    *int   `json:"matches,omitempty"`
	NextOffset *int64 `json:"next_offset,omitempty"` // where a search by lines goes on
}
