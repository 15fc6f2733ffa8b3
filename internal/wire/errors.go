package wire

import (
	"encoding/json"
	"fmt"
)

// Codes of errors: they fail the envelope, or the machinery behind it.
const (
	CodeUnavailable         = "unavailable"
	CodeLocked              = "locked"
	CodeQuarantined         = "quarantined"
	CodeProtocolUnsupported = "protocol_unsupported"
	CodeProtocolError       = "protocol_error"
	CodeFrameTooLarge       = "frame_too_large"
	CodeAttributionFailed   = "attribution_failed"
	CodeSessionUnknown      = "session_unknown"
	CodeSessionPending      = "session_pending"
	CodeSessionEnded        = "session_ended"
	CodeWrongChannel        = "wrong_channel"
	CodeSequenceInvalid     = "sequence_invalid"
	CodeOutcomeUnknown      = "outcome_unknown"
	CodeLedgerUnavailable   = "ledger_unavailable"
	CodeProofRequired       = "proof_required"
	CodeProofInvalid        = "proof_invalid"
	CodeBusy                = "busy"
	CodeBadRequest          = "bad_request"
	CodeInternal            = "internal"
)

// Codes of reasons: why an operation was denied.
const (
	ReasonCapabilityUnknown    = "capability_unknown"
	ReasonCapabilityNotGranted = "capability_not_granted"
	ReasonOutsideCapability    = "action_outside_capability"
	ReasonTargetBlocked        = "target_blocked"
	ReasonBudgetSpent          = "budget_spent"
	ReasonDenied               = "denied"
	ReasonApprovalExpired      = "approval_expired"
	ReasonNoApprover           = "no_approver"
	ReasonRevoked              = "revoked"
	ReasonBrokerRestarted      = "broker_restarted"
)

// advice has for each code one sentence for the agent and one next step for
// the person.
var advice = map[string][2]string{
	CodeUnavailable:         {"The Yett broker is not running.", "Start it: yett up."},
	CodeLocked:              {"Yett is locked.", "Unlock it: yett unlock (or yett up). Then ask again."},
	CodeQuarantined:         {"Yett's records do not match and it refuses to act.", "Look at: yett audit verify --rows. When you know what happened: yett audit acknowledge."},
	CodeProtocolUnsupported: {"Client and broker speak no common protocol version.", "Update the older side: yett version shows both."},
	CodeProtocolError:       {"The message does not follow the protocol; the channel is closed.", "Update the client; docs/protocol.md describes the messages."},
	CodeFrameTooLarge:       {"The message is longer than 1 MiB; the channel is closed.", "Send less at once."},
	CodeAttributionFailed:   {"Yett cannot establish which program is asking.", "Let the agent's MCP configuration start yett-mcp itself, by its absolute path as command; yett connect writes it so. Restart the agent after an update of Yett."},
	CodeSessionUnknown:      {"There is no such session.", "Open a session; ids from elsewhere restore nothing."},
	CodeSessionPending:      {"The session waits for a person's decision.", "Decide it: yett pending, then yett approve ID or yett deny ID."},
	CodeSessionEnded:        {"The session has ended; a new one needs a new decision.", "Request access again; a new card will be shown."},
	CodeWrongChannel:        {"The session belongs to another channel.", "Open a session on this channel; look at yett activity if you did not expect this."},
	CodeSequenceInvalid:     {"The sequence number is not the next one.", "Send each number once, in order, from 1."},
	CodeOutcomeUnknown:      {"An equal earlier action has no known outcome, so it is not executed again.", "Check at the other side whether it happened, then approve the repetition: yett pending."},
	CodeLedgerUnavailable:   {"Yett cannot write its record, so nothing was executed.", "Look at: yett status and the broker's log. Make room on the disk or repair its permissions."},
	CodeProofRequired:       {"This needs the person's proof.", "Run it in a terminal, or give the passphrase by --passphrase-fd."},
	CodeProofInvalid:        {"The proof does not verify.", "Check the passphrase and try again."},
	CodeBusy:                {"Too much is waiting for this caller.", "Wait for answers before asking more."},
	CodeBadRequest:          {"The request is not well formed.", "Correct what the message names, then ask again."},
	CodeInternal:            {"The broker failed in a way that it did not expect.", "Look at the broker's log and report it."},

	ReasonCapabilityUnknown:    {"There is no such capability.", "See what there is: list_access, or yett access list. What is missing goes into the access file: yett apply."},
	ReasonCapabilityNotGranted: {"This session was not granted the capability.", "When the agent has asked with request_access, approve the card: yett pending."},
	ReasonOutsideCapability:    {"The action lies outside what the capability allows.", "Compare it with list_access, or yett access list. If it should be allowed, widen the access file and yett apply it."},
	ReasonTargetBlocked:        {"The target's address is one that Yett never connects to.", "Check what the host's name resolves to; private ranges must be named in the access file."},
	ReasonBudgetSpent:          {"The capability's budget is used up for now.", "Wait, or raise the budget in the access file and yett apply it."},
	ReasonDenied:               {"The person said no.", "Nothing, if that was meant; else ask again after a while."},
	ReasonApprovalExpired:      {"Nobody decided in time.", "Ask again, and decide the card: yett pending."},
	ReasonNoApprover:           {"Nobody can be asked now.", "Open a terminal: yett pending."},
	ReasonRevoked:              {"The session was revoked.", "Request access again if that should be allowed."},
	ReasonBrokerRestarted:      {"The broker restarted before this was decided; nothing was executed.", "Ask again; a new session needs a new decision."},
}

// Advice returns the sentence for the agent and the next step for the person
// that belong to an error or reason code.
func Advice(code string) (message, nextStep string) {
	a := advice[code]
	return a[0], a[1]
}

// Error is an error as it crosses the socket: JSON-RPC code -32000 with the
// name in data.code.
type Error struct {
	Code     string
	Message  string // one sentence for the agent
	NextStep string // one next step for the person
	Data     map[string]any
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Is makes errors.Is(err, &Error{Code: c}) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// NewError returns the error of a code with its standing sentence.
func NewError(code string) *Error {
	m, n := Advice(code)
	return &Error{Code: code, Message: m, NextStep: n}
}

// Errorf returns the error of a code whose sentence names the particular
// cause. The cause must not hold text of the caller unescaped, nor a secret.
func Errorf(code, format string, args ...any) *Error {
	e := NewError(code)
	e.Message = fmt.Sprintf(format, args...)
	return e
}

// Then returns e with a next step for the person in place of the standing one.
func (e *Error) Then(step string) *Error {
	e.NextStep = step
	return e
}

// With returns e with one more member in its data.
func (e *Error) With(key string, value any) *Error {
	if e.Data == nil {
		e.Data = map[string]any{}
	}
	e.Data[key] = value
	return e
}

// Closes reports whether the channel ends with this error.
func (e *Error) Closes() bool {
	switch e.Code {
	case CodeProtocolError, CodeFrameTooLarge, CodeProtocolUnsupported, CodeAttributionFailed:
		return true
	}
	return false
}

const rpcCode = -32000

type rpcError struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

func (e *Error) rpc() *rpcError {
	data := map[string]any{"code": e.Code, "next_step": e.NextStep}
	for k, v := range e.Data {
		data[k] = v
	}
	return &rpcError{rpcCode, e.Message, data}
}

func (r *rpcError) wire() *Error {
	e := &Error{Message: r.Message, Data: r.Data}
	e.Code, _ = r.Data["code"].(string)
	e.NextStep, _ = r.Data["next_step"].(string)
	if e.Code == "" {
		e.Code = CodeInternal
	}
	delete(e.Data, "code")
	delete(e.Data, "next_step")
	return e
}

// Reason says why an operation was denied or why an outcome is unknown.
type Reason struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	NextStep string `json:"next_step"`
}

// NewReason returns the reason of a code; detail, if not empty, follows the
// standing sentence.
func NewReason(code, detail string) *Reason {
	m, n := Advice(code)
	if detail != "" {
		m += " " + detail
	}
	return &Reason{code, m, n}
}

// MarshalJSON makes an Error printable as the command line's error object.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(Reason{e.Code, e.Message, e.NextStep})
}
