package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Receipt shows somebody who has nothing of Yett that the holder of a passkey
// approved exactly one card: its document, the choice and its end. It is a JSON
// document; bytes are base64url without padding, as WebAuthn has them.
//
// Whoever checks it computes, as the package comment tells,
//
//	digest    = SHA-256("yett-card-v1\n" ‖ card)
//	message   = of the digests, choice, until ("-" for none) and nonce
//	challenge = SHA-256(message)
//
// and lets any verifier of WebAuthn check the assertion with that challenge,
// the relying party, the origin, user verification and the public key. The
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
	Digests    []string   `json:"digests"` // of all cards that the passkey was asked about at once
	Choice     string     `json:"choice"`
	Until      *time.Time `json:"until"`
	Nonce      string     `json:"nonce"`

	RelyingParty string    `json:"relying_party"`
	Origin       string    `json:"origin"`
	Name         string    `json:"passkey"`
	Key          Bytes     `json:"public_key"` // COSE
	KeyPEM       string    `json:"public_key_pem"`
	Fingerprint  string    `json:"public_key_sha256"`
	Challenge    Bytes     `json:"challenge"`
	Assertion    Assertion `json:"assertion"`

	Row    int64           `json:"row"`
	Log    json.RawMessage `json:"log_proof"`
	LogKey string          `json:"log_key"`
}

// ErrReceipt is wrapped where a receipt does not hold.
var ErrReceipt = errors.New("the receipt does not hold")

// NewReceipt makes the receipt of a decision that was proven by a passkey.
func NewReceipt(d Decided, at time.Time) (Receipt, error) {
	p := d.Proven
	if err := d.Check(); err != nil {
		return Receipt{}, err
	}
	if p.By != ByPasskey {
		return Receipt{}, ErrNotPasskey
	}
	key := Passkey{ID: p.Assertion.CredentialID, Key: p.Key}
	r := Receipt{Format: 1, ApprovalID: d.ApprovalID, DecidedAt: at, Card: d.Document, CardDigest: d.Digest, Digests: p.Cards,
		Choice: d.Choice, Nonce: p.Nonce, RelyingParty: RelyingParty, Origin: p.Origin, Name: p.Name, Key: p.Key,
		KeyPEM: key.PEM(), Fingerprint: key.Fingerprint(), Assertion: *p.Assertion}
	if !d.Until.IsZero() {
		end := d.Until.UTC()
		r.Until = &end
	}
	r.Challenge = Challenge(DecisionsMessage(p.Cards, d.Choice, d.Until, p.Nonce))
	return r, nil
}

// ParseReceipt reads a receipt and checks everything in it but the log's proof.
func ParseReceipt(text []byte) (r Receipt, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return r, fmt.Errorf("%w: something follows it", ErrReceipt)
	}
	if r.Format != 1 {
		return r, fmt.Errorf("%w: it is of format %d", ErrReceipt, r.Format)
	}
	d := Decided{ApprovalID: r.ApprovalID, Digest: r.CardDigest, Document: r.Card, Choice: r.Choice,
		Proven: Proven{By: ByPasskey, Nonce: r.Nonce, Cards: r.Digests, Name: r.Name, Origin: r.Origin, Key: r.Key, Assertion: &r.Assertion}}
	if r.Until != nil {
		d.Until = *r.Until
	}
	// What follows from the rest is made again. Only said are the passkey's name
	// and when the decision was recorded; the row's number stands in the log's proof.
	again, err := NewReceipt(d, r.DecidedAt)
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	if !bytes.Equal(again.Challenge, r.Challenge) || again.KeyPEM != r.KeyPEM || again.Fingerprint != r.Fingerprint || again.RelyingParty != r.RelyingParty {
		return r, fmt.Errorf("%w: its parts do not belong together", ErrReceipt)
	}
	var card struct {
		ApprovalID string `json:"approval_id"`
	}
	if err := json.Unmarshal([]byte(r.Card), &card); err != nil || card.ApprovalID != r.ApprovalID {
		return r, fmt.Errorf("%w: its card is another one", ErrReceipt)
	}
	return r, nil
}
