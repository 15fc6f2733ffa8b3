package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Receipt shows somebody who has nothing of Yett that the holder of a passkey, or
// of a Touch ID key, approved exactly one card: its document, the choice and its end. It is a JSON
// document; bytes are base64url without padding, as WebAuthn has them.
//
// Whoever checks it computes, as the package comment tells,
//
//	digest    = SHA-256("yett-card-v1\n" ‖ card)
//	message   = of the digests, choice, until ("-" for none) and nonce
//	challenge = SHA-256(message)
//
// and lets any verifier of WebAuthn check the assertion with that challenge,
// the relying party, the origin, user verification and the public key. Of a Touch
// ID key there is an Ed25519 signature over the challenge in its place. The
// public key is in the receipt, so whose it is has to be known otherwise: by
// its fingerprint.
//
// Log is the proof that the decision's row, sealed, lies under a signed head of
// the ledger: that there was such a row by then. What the row says is sealed,
// and not shown by it.
type Receipt struct {
	Format     int        `json:"format"` // 1
	ApprovalID string     `json:"approval_id"`
	DecidedAt  time.Time  `json:"decided_at"`
	Card       string     `json:"card"`
	CardDigest string     `json:"card_digest"`
	Digests    []string   `json:"digests"` // of all cards that the key was asked about at once
	Choice     string     `json:"choice"`
	Until      *time.Time `json:"until"`
	Nonce      string     `json:"nonce"`

	By          string `json:"by"`         // passkey or touchid
	Name        string `json:"name"`       // of the key; only said
	Key         Bytes  `json:"public_key"` // COSE
	KeyPEM      string `json:"public_key_pem"`
	Fingerprint string `json:"public_key_sha256"`
	Challenge   Bytes  `json:"challenge"`

	RelyingParty string     `json:"relying_party,omitempty"`
	Origin       string     `json:"origin,omitempty"`
	Assertion    *Assertion `json:"assertion,omitempty"` // by a passkey
	Signature    Bytes      `json:"signature,omitempty"` // by a Touch ID key

	Row    int64           `json:"row"`
	Log    json.RawMessage `json:"log_proof"`
	LogKey string          `json:"log_key"`
}

// ErrReceipt is wrapped where a receipt does not hold.
var ErrReceipt = errors.New("the receipt does not hold")

// NewReceipt makes the receipt of a decision that was proven by a signature.
func NewReceipt(d Decided, at time.Time) (Receipt, error) {
	p := d.Proven
	if err := d.Check(); err != nil {
		return Receipt{}, err
	}
	if !p.Signed() {
		return Receipt{}, ErrNotSigned
	}
	key := Passkey{ID: p.KeyID(), Key: p.Key}
	r := Receipt{Format: 1, ApprovalID: d.ApprovalID, DecidedAt: at, Card: d.Document, CardDigest: d.Digest, Digests: p.Cards,
		Choice: d.Choice, Nonce: p.Nonce, By: p.By, Name: p.Name, Key: p.Key, KeyPEM: key.PEM(), Fingerprint: key.Fingerprint()}
	if p.By == ByPasskey {
		r.RelyingParty, r.Origin, r.Assertion = RelyingParty, p.Origin, p.Assertion
	} else {
		r.Signature = p.Signature
	}
	if !d.Until.IsZero() {
		end := d.Until.UTC()
		r.Until = &end
	}
	r.Challenge = Challenge(DecisionsMessage(p.Cards, d.Choice, d.Until, p.Nonce))
	return r, nil
}

// ParseReceipt reads a receipt and checks everything in it but the log's proof.
func ParseReceipt(text []byte) (r Receipt, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	if r.Until != nil { // which the passkey was asked about in UTC
		end := r.Until.UTC()
		r.Until = &end
	}
	if err := sameForAll(text, r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	if r.Format != 1 {
		return r, fmt.Errorf("%w: it is of format %d", ErrReceipt, r.Format)
	}
	d := Decided{ApprovalID: r.ApprovalID, Digest: r.CardDigest, Document: r.Card, Choice: r.Choice,
		Proven: Proven{By: r.By, Nonce: r.Nonce, Cards: r.Digests, Name: r.Name, Origin: r.Origin, Key: r.Key, Assertion: r.Assertion, Signature: r.Signature}}
	if r.Until != nil {
		d.Until = *r.Until
	}
	// What follows from the rest is made again. Only said are the key's name
	// and when the decision was recorded; the row's number stands in the log's proof.
	again, err := NewReceipt(d, r.DecidedAt)
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	if !bytes.Equal(again.Challenge, r.Challenge) || again.KeyPEM != r.KeyPEM || again.Fingerprint != r.Fingerprint || again.RelyingParty != r.RelyingParty ||
		again.Origin != r.Origin || again.Assertion != r.Assertion || !bytes.Equal(again.Signature, r.Signature) {
		return r, fmt.Errorf("%w: its parts do not belong together", ErrReceipt)
	}
	return r, r.checkCard()
}

// checkCard checks that the card is the one that the receipt names, in the one
// form that cards are written in.
func (r Receipt) checkCard() error {
	var card struct {
		ApprovalID string `json:"approval_id"`
	}
	if err := json.Unmarshal([]byte(r.Card), &card); err != nil || card.ApprovalID != r.ApprovalID {
		return fmt.Errorf("%w: its card is another one", ErrReceipt)
	}
	if written, err := canonical(json.RawMessage(r.Card)); err != nil || string(written) != r.Card {
		return fmt.Errorf("%w: its card is not in the form of cards", ErrReceipt)
	}
	return nil
}
