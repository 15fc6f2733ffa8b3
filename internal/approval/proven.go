package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Ways in which a person proves a decision.
const (
	ByPassphrase = "passphrase"
	ByPasskey    = "passkey"
	ByTouchID    = "touchid"
	ByClick      = "click" // in a console session that a stronger proof opened for it
)

// Proven stands in the row of a decision, and says how the person proved it.
// Of a passkey and of a Touch ID key it has all that whoever reads the row needs
// to check it again; what a passphrase proves only the broker can check, while it
// has the key.
type Proven struct {
	By    string   `json:"by"`
	Nonce string   `json:"nonce,omitempty"`
	Cards []string `json:"cards,omitempty"` // all that one proof covers, in order

	Name      string     `json:"name,omitempty"`       // of the key
	Key       Bytes      `json:"public_key,omitempty"` // COSE
	Origin    string     `json:"origin,omitempty"`     // of a passkey's answer
	Assertion *Assertion `json:"assertion,omitempty"`  // a passkey's answer
	Signature Bytes      `json:"signature,omitempty"`  // by a Touch ID key
}

// ErrNotSigned: a decision that was proven in a way that nobody else can check.
var ErrNotSigned = errors.New("the decision was not proven by a signature")

// Signed reports whether a key signed, so that it can be checked again.
func (p Proven) Signed() bool { return p.By == ByPasskey || p.By == ByTouchID }

// KeyID is the id of the key that signed.
func (p Proven) KeyID() []byte {
	if p.By == ByPasskey && p.Assertion != nil {
		return p.Assertion.CredentialID
	}
	return keyID(p.Key)
}

// Check checks again that the key approved the card with this digest, with this
// choice and end.
func (p Proven) Check(digest, choice string, until time.Time) error {
	if p.Signed() && !slices.Contains(p.Cards, digest) {
		return fmt.Errorf("%w: it is not about this card", p.failure())
	}
	return p.verify(DecisionsMessage(p.Cards, choice, until, p.Nonce))
}

// CheckAct checks again that the key approved one other act: of this method, by
// a request with this SHA-256.
func (p Proven) CheckAct(method string, sum []byte) error {
	return p.verify(proofMessage(method, sum, p.Nonce))
}

// CheckValue checks again that the key approved that a value be stored.
func (p Proven) CheckValue(v Value) error { return p.verify(v.Message(p.Nonce)) }

func (p Proven) failure() error {
	if p.By == ByTouchID {
		return ErrTouchID
	}
	return ErrPasskey
}

func (p Proven) verify(message []byte) error {
	switch {
	case p.By == ByTouchID:
		return Passkey{Key: p.Key}.VerifyTouchID(message, p.Signature)
	case p.By != ByPasskey:
		return ErrNotSigned
	case p.Assertion == nil:
		return fmt.Errorf("%w: it is missing", ErrPasskey)
	}
	key := Passkey{ID: p.Assertion.CredentialID, Key: p.Key}
	_, err := key.Verify(message, p.Origin, *p.Assertion)
	return err
}

// Decided is a decision as its row tells it.
type Decided struct {
	ApprovalID string
	Digest     string
	Document   string
	Choice     string
	Until      time.Time
	Proven     Proven
}

// ReadDecided reads the parts of a row of a decision.
func ReadDecided(verified, granted, request, outcome []byte) (d Decided, err error) {
	var v struct{ Proof Proven }
	var g struct{ Until time.Time }
	var r struct {
		ApprovalID string `json:"approval_id"`
		CardDigest string `json:"card_digest"`
		Card       string
	}
	var o struct{ Choice string }
	for _, part := range []struct {
		from []byte
		into any
	}{{verified, &v}, {granted, &g}, {request, &r}, {outcome, &o}} {
		if part.from == nil {
			continue
		}
		if err := json.Unmarshal(part.from, part.into); err != nil {
			return d, fmt.Errorf("reading a decision: %w", err)
		}
	}
	return Decided{r.ApprovalID, r.CardDigest, r.Card, o.Choice, g.Until, v.Proof}, nil
}

// Check checks the digest of the card, and the signature over the decision if
// there is one.
func (d Decided) Check() error {
	if Digest([]byte(d.Document)) != d.Digest {
		return errors.New("the card is not the one of its digest")
	}
	if !d.Proven.Signed() {
		return nil
	}
	return d.Proven.Check(d.Digest, d.Choice, d.Until)
}
