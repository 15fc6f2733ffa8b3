package broker

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// checkTouchID checks a Touch ID key's signature over the challenge of a message.
// Like a passkey's answer it takes no turn: a signature is not guessed.
func (o *operator) checkTouchID(method string, message []byte, p *wire.Proof) (approval.Proven, *wire.Error) {
	b := o.b
	if b.state() == nil {
		return approval.Proven{}, wire.NewError(wire.CodeLocked)
	}
	if !o.takeNonce(p.Nonce) {
		return approval.Proven{}, staleNonce()
	}
	defer b.use()()
	known, err := b.Vault.Approvers()
	if err != nil {
		return approval.Proven{}, o.vaultFailed("checking a Touch ID signature", err)
	}
	i := slices.IndexFunc(known, func(k vault.Approver) bool { return k.Kind == vault.KindTouchID && bytes.Equal(k.ID, p.TouchID.KeyID) })
	if i < 0 {
		err = fmt.Errorf("%w: its key may not prove anything here", approval.ErrTouchID)
	} else {
		err = approval.Passkey{ID: known[i].ID, Key: known[i].Key}.VerifyTouchID(message, p.TouchID.Signature)
	}
	if err != nil {
		b.Log.Warn("a Touch ID signature does not hold", "method", method, "cause", err)
		return approval.Proven{}, wire.Errorf(wire.CodeProofInvalid, "%s", sentence(err.Error())).
			Then("Try again, or prove with the passphrase.")
	}
	return approval.Proven{By: approval.ByTouchID, Nonce: p.Nonce, Name: known[i].Name, Key: known[i].Key, Signature: p.TouchID.Signature}, nil
}

// checkTouchIDAct checks a Touch ID signature for what is no decision. It opens
// reading, so that a card can be looked at before it is approved. The finger is
// asked for by a program and not by the key, so it proves nothing else.
func (o *operator) checkTouchIDAct(method string, m wire.Managed) *wire.Error {
	if method != wire.MethodActivityRead {
		return wire.Errorf(wire.CodeProofRequired, "Touch ID approves cards and opens reading, and proves nothing else.").
			Then("Prove with the passphrase, or where that serves with a passkey.")
	}
	proven, fail := o.checkTouchID(method, approval.ProofMessage(method, m.Request, m.Proof.Nonce), m.Proof)
	if fail != nil {
		return fail
	}
	sum := sha256.Sum256(m.Request)
	request := map[string]any{"method": method, "touchid": proven.Name, "request_sha256": hex.EncodeToString(sum[:])}
	return o.row("proof.touchid", request, map[string]any{"proof": proven})
}

// addTouchID lets a Touch ID key prove from now on. The passphrase was the proof,
// over the very bytes of the request; the key shows that it is there by signing
// the proof's nonce. The row comes first.
func (o *operator) addTouchID(r wire.TouchIDAdd, nonce string) (any, *wire.Error) {
	if name := approval.Escape(r.Name, 64); name != r.Name || name == "" {
		return nil, wire.Errorf(wire.CodeBadRequest, "A Touch ID key's name has 1 to 64 plain characters.")
	}
	if len(r.PublicKey) != ed25519.PublicKeySize {
		return nil, wire.Errorf(wire.CodeBadRequest, "A Touch ID key's public half has %d bytes.", ed25519.PublicKeySize)
	}
	k := approval.TouchIDKey(r.PublicKey)
	if err := k.VerifyTouchID(approval.EnrolTouchIDMessage(r.Name, nonce), r.Signature); err != nil {
		return nil, wire.Errorf(wire.CodeProofInvalid, "%s Nothing was changed.", sentence(err.Error()))
	}
	if known, err := o.b.Vault.Approvers(); err != nil {
		return nil, o.passkeyFailed("adding a Touch ID key", err)
	} else if slices.ContainsFunc(known, func(a vault.Approver) bool { return a.Name == r.Name || bytes.Equal(a.ID, k.ID) }) {
		return nil, o.passkeyFailed("adding a Touch ID key", vault.ErrApproverThere)
	}
	a := vault.Approver{Kind: vault.KindTouchID, Name: r.Name, ID: k.ID, Key: k.Key, AddedAt: o.b.Clock.Now()}
	request := map[string]any{"name": a.Name, "credential_id": k.ID, "public_key": k.Key, "public_key_sha256": k.Fingerprint()}
	if fail := o.row("touchid.added", request, nil); fail != nil {
		return nil, fail
	}
	if err := o.b.Vault.AddApprover(a); err != nil {
		fail := o.passkeyFailed("adding a Touch ID key", err)
		o.row("touchid.removed", request, map[string]any{"code": fail.Code, "message": fail.Message})
		return nil, fail
	}
	return wire.Passkey{Kind: a.Kind, Name: a.Name, ID: a.ID, Fingerprint: k.Fingerprint(), Transports: []string{}, AddedAt: a.AddedAt}, nil
}
