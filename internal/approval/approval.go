// Package approval makes the cards that a person decides, keeps the queue of
// those that wait, and says over which bytes a decision is proven.
//
// A card is one immutable JSON document. Its four parts keep apart what the
// system established (verified), what the caller says (claimed), what a yes
// would give (granting) and the action itself (request). Each fact about a
// process stands under its source: kernel, filesystem, or in the claimed part.
// Every string in a card passes Escape at the one place where cards are
// written, so that no text of an agent can hide, reorder or imitate anything.
//
// The document is canonical JSON by RFC 8785 (JCS), restricted to what a card
// has: objects, arrays, strings, true, false, null and integers, the latter
// with all their digits also beyond 2^53. Times are RFC 3339 in UTC.
// testdata/canonical.json has vectors of the form, testdata/decisions.json of
// digest, message and proof.
//
//	digest  = SHA-256("yett-card-v1\n" ‖ document)
//	message = "yett-decision-v1\n" digest-hex "\n" choice "\n" until "\n" nonce
//	proof   = HMAC-SHA-256(approval key, message)
//
// until is RFC 3339 in UTC, or "-"; the other fields pass Escape, so that no
// field can hold a line break. What was digested is what is executed: the
// broker keeps the request beside the card and runs nothing else.
//
// The package trusts its caller, the broker, for evidence and for time; it
// trusts no text.
package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// Choices of a decision.
const (
	ChoiceDeny  = "deny"
	ChoiceOnce  = "once"
	ChoiceUntil = "until"
)

const (
	// MaxGrant is the longest time that one decision can give.
	MaxGrant = 8 * time.Hour
	// CardLife is how long a card waits for a decision.
	CardLife = 10 * time.Minute
)

// Card is the document that a person decides.
type Card struct {
	Format         int       `json:"format"` // 1
	ApprovalID     string    `json:"approval_id"`
	Tag            string    `json:"tag"`
	BrokerInstance string    `json:"broker_instance"`
	ExpiresAt      time.Time `json:"expires_at"`
	Verified       Verified  `json:"verified"`
	Claimed        Claimed   `json:"claimed"`
	Granting       Granting  `json:"granting"`
	Request        *Request  `json:"request"` // null on a card for a session
}

// Verified is what the system established. Agent is the process that an
// approval names; Shim is the yett-mcp between it and the broker, if any.
type Verified struct {
	ChannelID string   `json:"channel_id"`
	Role      string   `json:"role"`
	Agent     Process  `json:"agent"`
	Shim      *Process `json:"shim,omitempty"`
	Words     []string `json:"words"`
	// Chain is what led to the agent, nearest first: context, no ground. ChainCut
	// tells that it goes on where nobody could look.
	Chain    []Ancestor `json:"chain"`
	ChainCut bool       `json:"chain_cut,omitempty"`
	// NotKnown says what nobody established, in words: which code a runtime
	// runs, what a hidden program is, why there is no digest.
	NotKnown []string `json:"not_known"`
	// OtherSessions is how many live sessions the agent has besides this one:
	// every shim of one agent is a session of its own.
	OtherSessions int    `json:"other_sessions"`
	Profile       string `json:"profile"`
	Limits        string `json:"limits"` // what this profile does not stop
	Home          string `json:"home,omitempty"`
}

// Process has the kernel's and the file system's facts; claims stand elsewhere.
type Process struct {
	Kernel     action.KernelFacts `json:"kernel"`
	Filesystem action.FileFacts   `json:"filesystem"`
}

// Ancestor is one process of the chain, with the kernel's facts.
type Ancestor struct {
	Kernel action.Ancestor `json:"kernel"`
}

// Claimed is what the caller says of itself and of its reasons.
type Claimed struct {
	action.Claims
	Purpose string            `json:"purpose,omitempty"`
	Process action.ProcClaims `json:"process"`
}

// Granting is what a yes gives, to whom, and until when at the longest.
type Granting struct {
	Capabilities []Capability `json:"capabilities"`
	Unit         action.Unit  `json:"unit"`
	LongestEnd   time.Time    `json:"longest_end"`
	Note         string       `json:"note,omitempty"` // e.g. that the outcome of an equal action is unknown
}

// Capability is one capability in the words of the access file.
type Capability struct {
	Name     string   `json:"name"`
	Target   string   `json:"target"`
	Methods  []string `json:"methods,omitempty"`
	Paths    []string `json:"paths,omitempty"`
	Query    []string `json:"query,omitempty"`
	Commands []string `json:"commands,omitempty"`
	PTY      bool     `json:"pty,omitempty"` // a command may have a terminal
	Copy     *Copying `json:"copy,omitempty"`
	Budget   string   `json:"budget,omitempty"`
	Confirm  string   `json:"confirm,omitempty"`   // "each": a yes lets the session ask, action by action
	Insecure bool     `json:"insecure,omitempty"`  // sent over plain http
	HostKeys []string `json:"host_keys,omitempty"` // fingerprints of what an SSH host may prove itself by
	Via      []Hop    `json:"via,omitempty"`       // hosts that lead to it, in order
	Env      []string `json:"env,omitempty"`       // environment variables that an agent may set
}

// Hop is a host that leads to the target.
type Hop struct {
	Target   string   `json:"target"`
	HostKeys []string `json:"host_keys"`
}

// Copying is what a capability to copy files allows.
type Copying struct {
	Direction string   `json:"direction"` // up (to the host), down or both
	Remote    []string `json:"remote"`
	Local     []string `json:"local"`
	MaxSize   string   `json:"max_size"`
	Overwrite bool     `json:"overwrite,omitempty"`
}

// Request is the one action that a card for an operation shows, in full but for
// a long body or input: of that Body or Stdin is the beginning, End the end,
// NotShown how many bytes lie between and SHA256 the digest of all of it.
type Request struct {
	OperationID string            `json:"operation_id"`
	Capability  string            `json:"capability"`
	Digest      string            `json:"digest"` // SHA-256 of the canonical form
	Method      string            `json:"method,omitempty"`
	Path        string            `json:"path,omitempty"`
	Query       string            `json:"query,omitempty"`
	Headers     []action.Header   `json:"headers,omitempty"`
	Body        string            `json:"body,omitempty"`
	BodySize    int               `json:"body_size"`
	Command     string            `json:"command,omitempty"`
	Stdin       string            `json:"stdin,omitempty"`
	StdinSize   int               `json:"stdin_size"`
	End         string            `json:"end,omitempty"`
	NotShown    int               `json:"not_shown,omitempty"`
	SHA256      string            `json:"sha256,omitempty"`
	PTY         bool              `json:"pty,omitempty"`
	Env         []action.Variable `json:"env,omitempty"`
	Direction   string            `json:"direction,omitempty"`
	Local       string            `json:"local,omitempty"`
	Remote      string            `json:"remote,omitempty"`
	Overwrite   bool              `json:"overwrite,omitempty"`
	TimeoutMS   int64             `json:"timeout_ms,omitempty"`
}

// NewRequest shows a canonical request.
func NewRequest(operationID string, r action.Request) *Request {
	d := r.Digest()
	v := &Request{OperationID: operationID, Capability: r.Capability, Digest: hex.EncodeToString(d[:])}
	v.show(r.HTTP, r.SSH)
	if h := r.HTTP; h != nil {
		v.Method, v.Path, v.Query, v.Headers = h.Method, h.Path, h.Query, h.Headers
	}
	if s := r.SSH; s != nil {
		v.Command = s.Command
		v.PTY, v.Env, v.TimeoutMS = s.PTY, s.Env, s.Timeout.Milliseconds()
	}
	if c := r.Copy; c != nil {
		v.Direction, v.Local, v.Remote, v.Overwrite = c.Direction, c.Local, c.Remote, c.Overwrite
		v.TimeoutMS = c.Timeout.Milliseconds()
	}
	return v
}

// VerifiedOf takes the facts of a caller, and ClaimedOf what it says.
func VerifiedOf(channelID string, c action.Caller) Verified {
	s := c.Subject()
	v := Verified{ChannelID: channelID, Role: c.Role, Words: append([]string{}, c.Words...), NotKnown: notKnown(s)}
	v.Agent = Process{s.Kernel, s.Filesystem}
	if c.Agent != nil {
		v.Shim = &Process{c.Peer.Kernel, c.Peer.Filesystem}
	}
	return v
}

// notKnown says what the evidence of a process leaves open.
func notKnown(p action.Process) []string {
	open := []string{}
	switch p.Kernel.ExeState {
	case "hidden":
		open = append(open, "which program this is: it does not let other programs look")
	case "memory":
		open = append(open, "where this program comes from: there is no file of it")
	}
	if p.Claimed.Runtime != "" {
		open = append(open, "which code the runtime runs: what names a script is chosen by the process")
	}
	if p.Filesystem.NotHashed != "" && p.Kernel.ExeState != "hidden" {
		open = append(open, "the content of the program: "+p.Filesystem.NotHashed)
	}
	return open
}

// ClaimedOf takes what a caller says of itself, and the purpose it gave.
func ClaimedOf(c action.Caller, purpose string) Claimed {
	return Claimed{Claims: c.Claims, Purpose: purpose, Process: c.Subject().Claimed}
}

// Digest returns the digest of a card document as hexadecimal text.
func Digest(document []byte) string {
	h := sha256.New()
	h.Write([]byte("yett-card-v1\n"))
	h.Write(document)
	return hex.EncodeToString(h.Sum(nil))
}

// Received returns the document of a card that came over JSON in the form that
// its digest is of. Encoders on the way may write the same text with other
// escapes (encoding/json does for <, > and &), so the canonical form is made
// again. It fails if the digest is of another document.
func Received(card json.RawMessage, digest string) (json.RawMessage, error) {
	document, err := canonical(card)
	if err != nil {
		return nil, fmt.Errorf("reading a card: %w", err)
	}
	if Digest(document) != digest {
		return nil, errors.New("the card and its digest do not match")
	}
	return document, nil
}

// DecisionMessage returns the bytes that the proof of a decision covers.
func DecisionMessage(digest, choice string, until time.Time, nonce string) []byte {
	end := "-"
	if !until.IsZero() {
		end = until.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Appendf(nil, "yett-decision-v1\n%s\n%s\n%s\n%s", field(digest), field(choice), end, field(nonce))
}

// ProofMessage returns the bytes that the proof of any other management
// request covers: the method, the exact bytes of the request, and the nonce.
func ProofMessage(method string, request []byte, nonce string) []byte {
	sum := sha256.Sum256(request)
	return proofMessage(method, sum[:], nonce)
}

func proofMessage(method string, sum []byte, nonce string) []byte {
	return fmt.Appendf(nil, "yett-proof-v1\n%s\n%x\n%s", field(method), sum, field(nonce))
}

// Value is what a passkey's answer about the value of a credential covers: what
// it is for. The value itself is left out, since the row that keeps the answer
// would let its reader try guesses.
type Value struct{ Method, Name, Kind, Place string }

// Message returns the bytes that a passkey's answer covers.
//
//	"yett-value-v1\n" method "\n" name "\n" kind "\n" place "\n" nonce
func (v Value) Message(nonce string) []byte {
	return fmt.Appendf(nil, "yett-value-v1\n%s\n%s\n%s\n%s\n%s", field(v.Method), field(v.Name), field(v.Kind), field(v.Place), field(nonce))
}

// field leaves every well-formed field as it is. Of the others no two become
// equal, and none runs into the next.
func field(s string) string { return Escape(s, math.MaxInt) }
