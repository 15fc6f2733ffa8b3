package wire

import (
	"encoding/json"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// Methods of management. Their parameters are private to the yett of the same
// release; only broker.status and broker.stop keep their shape across
// versions.
const (
	MethodBrokerStatus      = "broker.status"
	MethodBrokerStop        = "broker.stop"
	MethodVaultChallenge    = "vault.challenge"
	MethodVaultUnlock       = "vault.unlock"
	MethodVaultLock         = "vault.lock"
	MethodVaultPause        = "vault.pause"
	MethodSecretList        = "secret.list"
	MethodSecretSet         = "secret.set"
	MethodSecretRotate      = "secret.rotate"
	MethodSecretRemove      = "secret.remove"
	MethodAccessApply       = "access.apply"
	MethodAccessShow        = "access.show"
	MethodAccessText        = "access.text" // the file that is applied, by proof
	MethodAccessTest        = "access.test" // what would be said to one action
	MethodApprovalList      = "approval.list"
	MethodApprovalApprove   = "approval.approve"
	MethodApprovalDeny      = "approval.deny"
	MethodApprovalWait      = "approval.wait" // answers when what waits has changed
	MethodSessionList       = "session.list"
	MethodSessionRevoke     = "session.revoke"
	MethodSessionPaused     = "session.paused" // what an unlocking would resume
	MethodActivityList      = "activity.list"
	MethodActivityRead      = "activity.read" // opens reading on this channel by proof
	MethodLedgerFound       = "ledger.found"  // what was found changed
	MethodLedgerAccept      = "ledger.acknowledge"
	MethodLedgerExport      = "ledger.export" // opens reading, and records that the ledger was exported
	MethodOperationShow     = "operation.show"
	MethodOperationShowBody = "operation.show_body"
	MethodOperationSettle   = "operation.resolve"
)

// Empty is the parameters or the result of a method that has none.
type Empty struct{}

// Managed wraps the parameters of every management method. Proof is null-free:
// it is absent where the method needs none. The proof's code is over the exact
// bytes of Request, so nothing can be swapped between proof and use.
type Managed struct {
	Request json.RawMessage `json:"request"`
	Proof   *Proof          `json:"proof,omitempty" wire:"optional"`
}

// Proof shows that the person is there: an HMAC under the approval key over
// ProofMessage, or the answer of a passkey to its hash, or a Touch ID key's
// signature over that. A decision by a click has none of them.
type Proof struct {
	Nonce     string            `json:"nonce"` // from vault.challenge, used once, bound to the channel
	MAC       []byte            `json:"mac,omitempty" wire:"optional"`
	Assertion *Assertion        `json:"assertion,omitempty" wire:"optional"`
	TouchID   *TouchIDSignature `json:"touchid,omitempty" wire:"optional"`
	Click     bool              `json:"click,omitempty" wire:"optional"`
}

// Status answers broker.status. Up to Sessions its members belong to
// ProtocolStable. UpdateWaiting: another program is installed by now than the
// one that runs, and takes effect at the next start.
type Status struct {
	State          string `json:"state"` // ready, locked or quarantined
	BrokerVersion  string `json:"broker_version"`
	BrokerInstance string `json:"broker_instance"`
	Endpoint       string `json:"endpoint"`
	Profile        string `json:"profile"`
	Home           string `json:"home"`
	Pending        int    `json:"pending"`
	Sessions       int    `json:"sessions"`
	Paused         int    `json:"paused"` // of the sessions
	Ledger         string `json:"ledger"` // ok, or why nothing is executed
	UpdateWaiting  bool   `json:"update_waiting"`
	Console        string `json:"console"`                                   // its address; "" if there is none
	ConsoleProblem string `json:"console_problem,omitempty" wire:"optional"` // why there is none
}

// Challenge answers vault.challenge: how to derive the keys, and a nonce.
type Challenge struct {
	Slots    []ChallengeSlot   `json:"slots"`
	Nonce    string            `json:"nonce"`
	Passkeys *PasskeyChallenge `json:"passkeys,omitempty"`
}

// ChallengeSlot has the Argon2id parameters (RFC 9106) of one key slot.
type ChallengeSlot struct {
	Name      string `json:"name"`
	Salt      []byte `json:"salt"`
	Time      uint32 `json:"time"`
	MemoryKiB uint32 `json:"memory_kib"`
	Threads   uint8  `json:"threads"`
	Form      string `json:"form"` // "nfc": the passphrase is normalised first; "" in old slots
}

// Unlock carries the unlock key of a slot, never the passphrase.
type Unlock struct {
	Slot      string `json:"slot"`
	UnlockKey []byte `json:"unlock_key"`
}

// Unlocked answers vault.unlock: what became of the sessions that were paused.
type Unlocked struct {
	Resumed []Resumed `json:"resumed"`
	Ended   []Resumed `json:"ended"`
	Notices []string  `json:"notices,omitempty" wire:"optional"` // what happened to the vault's file meanwhile
}

// Resumed is one paused session. Program and process are named after the proof
// only, the end reason for one that could not go on.
type Resumed struct {
	SessionID    string    `json:"session_id"`
	Program      string    `json:"program,omitempty"`
	PID          int       `json:"pid,omitempty"`
	Capabilities []string  `json:"capabilities"`
	ExpiresAt    time.Time `json:"expires_at"`
	EndReason    string    `json:"end_reason,omitempty"`
}

// SecretName names a stored value.
type SecretName struct {
	Name string `json:"name"`
}

// SecretSet stores a value that the access file has declared. With Keep the very
// value that is there already is no failure, and SecretKept the answer.
type SecretSet struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
	Keep  bool   `json:"keep,omitempty" wire:"optional"`
}

// SecretKept answers secret.set with Keep.
type SecretKept struct {
	There bool `json:"there"` // it was there already
}

// Secret describes a declared value, never the value.
type Secret struct {
	Name  string     `json:"name"`
	Kind  string     `json:"kind"`
	Place string     `json:"place"`
	Set   bool       `json:"set"`
	SetAt *time.Time `json:"set_at"`
}

// AccessApply carries an access file. With DryRun only the difference comes
// back and no proof is needed. With Add the file is added to the one that is
// applied, in which nothing is replaced.
type AccessApply struct {
	File   string `json:"file"`
	DryRun bool   `json:"dry_run"`
	Add    bool   `json:"add,omitempty" wire:"optional"`
}

// AccessApplied answers access.apply.
type AccessApplied struct {
	Difference string   `json:"difference"`
	Warnings   []string `json:"warnings"`
	Voided     []string `json:"voided"`  // values that lost their place and must be set again
	Missing    []string `json:"missing"` // credentials without a value
}

// AccessText answers access.text.
type AccessText struct {
	File string `json:"file"`
}

// AccessTest asks what the applied file says to one action. Nothing is done.
type AccessTest struct {
	Capability string `json:"capability"`
	Action     Action `json:"action"`
}

// AccessTested answers access.test. Code and Message say why it is not allowed.
type AccessTested struct {
	Allowed bool   `json:"allowed"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Confirm string `json:"confirm,omitempty"` // how often the person is asked
}

// ApprovalList asks for the waiting cards from place Offset on, or for one of
// them.
type ApprovalList struct {
	ApprovalID string `json:"approval_id,omitempty" wire:"optional"`
	Offset     int    `json:"offset,omitempty" wire:"optional"`
}

// ApprovalWait asks to be told when there were other changes of what waits than
// Seen, or after WaitMS, at most 25,000. Whoever asks it can be asked.
type ApprovalWait struct {
	Seen   int64 `json:"seen"`
	WaitMS int64 `json:"wait_ms"`
}

// ApprovalChanged answers approval.wait.
type ApprovalChanged struct {
	Changes int64 `json:"changes"`
}

// Approval is one waiting card. Digest, Card, SessionID and Asked are present
// after proof; in a list of many Digest and Card are, of the first that fit, and
// of each that is asked for by its id.
type Approval struct {
	ApprovalID   string          `json:"approval_id"`
	SessionID    string          `json:"session_id,omitempty"`
	Asked        int             `json:"asked,omitempty"` // how often, since it waits
	CardDigest   string          `json:"card_digest,omitempty"`
	Card         json.RawMessage `json:"card,omitempty"`
	Capabilities []string        `json:"capabilities"`
	AskedAt      time.Time       `json:"asked_at"`
	ExpiresAt    time.Time       `json:"expires_at"`
}

// Approve decides a card in favour. Until is zero for choice once.
type Approve struct {
	ApprovalID string    `json:"approval_id"`
	CardDigest string    `json:"card_digest"`
	Choice     string    `json:"choice"` // once or until
	Until      time.Time `json:"until"`
}

// ApprovalID names a card.
type ApprovalID struct {
	ApprovalID string `json:"approval_id"`
}

// SessionID names a session.
type SessionID struct {
	SessionID string `json:"session_id"`
}

// Revoke names the sessions that end: one of its members is given. PID is a
// process of the caller: the agent, or the program that it asks through.
type Revoke struct {
	SessionID string `json:"session_id,omitempty" wire:"optional"`
	PID       int    `json:"pid,omitempty" wire:"optional"`
	All       bool   `json:"all,omitempty" wire:"optional"`
}

// Revoked answers session.revoke.
type Revoked struct {
	Sessions int `json:"sessions"` // that lived, and ended
}

// Session is one session of this broker instance.
type Session struct {
	SessionID    string        `json:"session_id"`
	State        string        `json:"state"`
	EndReason    string        `json:"end_reason"` // empty while it lives
	ChannelID    string        `json:"channel_id"`
	Unit         action.Unit   `json:"unit"`
	Caller       action.Caller `json:"caller"`
	Capabilities []string      `json:"capabilities"`
	BeganAt      time.Time     `json:"began_at"`
	ExpiresAt    time.Time     `json:"expires_at"`
	Grants       []Granted     `json:"grants"` // of the capabilities
}

// Granted is how long one capability of a session may be used.
type Granted struct {
	Capability string    `json:"capability"`
	Until      time.Time `json:"until"`
	Once       bool      `json:"once"` // it covers one action
}

// List answers a list method: Items are what the caller may read, Hidden
// counts what a proof would show too. Rest names what the answer had no room
// for, in its order after the items: each can be asked for by its id. More
// counts what had no room even for that.
type List[T any] struct {
	Items  []T      `json:"items"`
	Hidden int      `json:"hidden"`
	Rest   []string `json:"rest,omitempty"`
	More   int      `json:"more,omitempty"`
}

// ActivityList asks for rows from number From on, at most Limit. With Newest it
// asks for the last ones before From, and for the last of all if From is 0.
type ActivityList struct {
	From   int64 `json:"from"`
	Limit  int   `json:"limit"`
	Newest bool  `json:"newest,omitempty" wire:"optional"`
}

// Quarantine answers ledger.found. Found is present after proof.
type Quarantine struct {
	Quarantined bool   `json:"quarantined"`
	Found       string `json:"found,omitempty"`
}

// Acknowledge is a person's statement about records that were found changed.
type Acknowledge struct {
	Note string `json:"note"`
}

// Acknowledged answers ledger.acknowledge.
type Acknowledged struct {
	Row        int64  `json:"row"`
	Found      string `json:"found"`
	HeadKeptIn string `json:"head_kept_in"`
}

// Export says what is taken out of the ledger.
type Export struct {
	Format string `json:"format"`
	Full   bool   `json:"full"`
}

// OperationID names an operation.
type OperationID struct {
	OperationID string `json:"operation_id"`
}

// OperationShown is one operation with its rows: intent, end, resolution.
type OperationShown struct {
	OperationID string            `json:"operation_id"`
	State       string            `json:"state"`
	Code        string            `json:"code"`
	SessionID   string            `json:"session_id"`
	Unsafe      bool              `json:"unsafe"`
	CreatedAt   time.Time         `json:"created_at"`
	IntentRow   int64             `json:"intent_row"`
	LastRow     int64             `json:"last_row"`
	ResolvedRow int64             `json:"resolved_row"`
	Rows        []json.RawMessage `json:"rows"`
	Bodies      []string          `json:"bodies"` // what can still be read of its result
}

// OperationShowBody asks for a piece of a body of an operation.
type OperationShowBody struct {
	OperationID string `json:"operation_id"`
	Stream      string `json:"stream"` // body, stderr, stdout-tail or stderr-tail
	Offset      int64  `json:"offset"`
	Limit       int64  `json:"limit"`
}

// OperationResolve is what a person says became of an action whose outcome is
// unknown.
type OperationResolve struct {
	OperationID string `json:"operation_id"`
	Happened    bool   `json:"happened"`
	Note        string `json:"note"`
}
