package wire

import "time"

// Methods about the passkeys that may prove, and about decisions by a click.
const (
	MethodPasskeyList   = "passkey.list"
	MethodPasskeyAdd    = "passkey.add"
	MethodPasskeyRemove = "passkey.remove"
	MethodTouchIDAdd    = "touchid.add" // listed and removed as passkeys are
	MethodApproveAll    = "approval.approve_all"
	MethodApprovalClick = "approval.click" // lets this console session decide by a click for a while
)

// Assertion is the answer of a passkey to the challenge of a proof's message:
// SHA-256 of what a code would be over.
type Assertion struct {
	CredentialID      []byte `json:"credential_id"`
	ClientData        []byte `json:"client_data_json"`
	AuthenticatorData []byte `json:"authenticator_data"`
	Signature         []byte `json:"signature"`
}

// KindTouchID is the kind of a Touch ID key in a list of passkeys.
const KindTouchID = "touchid"

// Passkey is one that may prove, or a Touch ID key.
type Passkey struct {
	Kind        string    `json:"kind,omitempty" wire:"optional"` // touchid; a passkey has none
	Name        string    `json:"name"`
	ID          []byte    `json:"credential_id"`
	Fingerprint string    `json:"public_key_sha256"`
	Transports  []string  `json:"transports"`
	AddedAt     time.Time `json:"added_at"`
}

// PasskeyChallenge tells a page how to ask for a passkey: whether there is one,
// those that may prove, and the only origin whose answers count. Which they are
// is told after a proof; before it the browser is left to find one. It is absent
// where there is no console, or while locked.
type PasskeyChallenge struct {
	RelyingParty string   `json:"relying_party"`
	Origin       string   `json:"origin"`
	Any          bool     `json:"any"`
	IDs          [][]byte `json:"credential_ids"`
}

// PasskeyAdd is what a browser handed over for a new passkey, over the
// challenge of the proof's own nonce. The proof is by the passphrase.
type PasskeyAdd struct {
	Name        string   `json:"name"`
	ClientData  []byte   `json:"client_data_json"`
	Attestation []byte   `json:"attestation_object"`
	Transports  []string `json:"transports,omitempty" wire:"optional"`
}

// TouchIDSignature is by a Touch ID key, over the challenge of a proof's message.
type TouchIDSignature struct {
	KeyID     []byte `json:"key_id"`
	Signature []byte `json:"signature"`
}

// TouchIDAdd is a new Touch ID key: its Ed25519 public key, and its signature over
// the challenge of the proof's own nonce. The proof is by the passphrase.
type TouchIDAdd struct {
	Name      string `json:"name"`
	PublicKey []byte `json:"public_key"`
	Signature []byte `json:"signature"`
}

// PasskeyName names one.
type PasskeyName struct {
	Name string `json:"name"`
}

// ApproveAll decides several cards with one proof over all their digests, in
// this order. Until is zero for choice once.
type ApproveAll struct {
	Cards  []CardNamed `json:"cards"`
	Choice string      `json:"choice"`
	Until  time.Time   `json:"until"`
}

// CardNamed is a card as it was shown.
type CardNamed struct {
	ApprovalID string `json:"approval_id"`
	CardDigest string `json:"card_digest"`
}

// ApprovedAll answers approval.approve_all: one entry for each card, in order.
// Of a card that could not be decided any more it says why.
type ApprovedAll struct {
	Cards []CardDecided `json:"cards"`
}

// CardDecided is what became of one of several. Until is when what was given for
// a time ends, which is earlier than what was asked for where the session ends
// before it. A card that was refused may wait on.
type CardDecided struct {
	ApprovalID string    `json:"approval_id"`
	Until      time.Time `json:"until,omitzero"`
	Error      *Error    `json:"error,omitempty"`
	Waits      bool      `json:"waits,omitempty"`
}

// ClickUntil answers approval.click.
type ClickUntil struct {
	Until time.Time `json:"until"`
}
