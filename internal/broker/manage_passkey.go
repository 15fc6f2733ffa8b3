package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// ConsoleAt says on which port the console listens, 0 for none. Only answers of
// passkeys that were made on its page count: without a console none does.
func (b *Broker) ConsoleAt(port int) { b.consolePort.Store(int32(port)) }

// origin is the console's, or "".
func (b *Broker) origin() string {
	if port := b.consolePort.Load(); port != 0 {
		return approval.Origin(int(port))
	}
	return ""
}

// passkeyChallenge tells a page how to ask for a passkey. It is nil while there
// is none to ask for. Which ones there are is told to whoever may read; a page
// before its proof lets the browser find one.
func (o *operator) passkeyChallenge() *wire.PasskeyChallenge {
	origin := o.b.origin()
	known, err := o.b.Vault.Approvers()
	if origin == "" || err != nil {
		return nil
	}
	c := &wire.PasskeyChallenge{RelyingParty: approval.RelyingParty, Origin: origin, IDs: [][]byte{}}
	read := o.mayRead()
	for _, a := range known {
		if a.Kind != "" {
			continue
		}
		if c.Any = true; read {
			c.IDs = append(c.IDs, a.ID)
		}
	}
	return c
}

// checkPasskey checks the answer of a passkey to the challenge of a message.
// It takes no turn and waits for none: a signature is not guessed, and whoever
// guesses passphrases must not keep the person from using a passkey.
func (o *operator) checkPasskey(method string, message []byte, p *wire.Proof) (approval.Proven, *wire.Error) {
	b := o.b
	if b.state() == nil {
		return approval.Proven{}, wire.NewError(wire.CodeLocked)
	}
	if !o.takeNonce(p.Nonce) {
		return approval.Proven{}, staleNonce()
	}
	defer b.use()()
	proven, err := b.verifyPasskey(message, p)
	if err == nil {
		return proven, nil
	}
	b.Log.Warn("a passkey's answer does not hold", "method", method, "cause", err, "wrong", b.passkeysWrong.Add(1))
	if errors.Is(err, approval.ErrCounter) {
		o.narrow("passkey.counter_went_back", map[string]any{"passkey": proven.Name, "method": method})
	}
	if !errors.Is(err, approval.ErrPasskey) {
		return approval.Proven{}, o.vaultFailed("keeping a passkey's count", err)
	}
	e := wire.Errorf(wire.CodeProofInvalid, "%v.", err)
	e.NextStep = "Try again on the console's own page, or prove with the passphrase."
	return approval.Proven{}, e
}

func (b *Broker) verifyPasskey(message []byte, p *wire.Proof) (approval.Proven, error) {
	a := approval.Assertion{CredentialID: p.Assertion.CredentialID, ClientData: p.Assertion.ClientData,
		AuthenticatorData: p.Assertion.AuthenticatorData, Signature: p.Assertion.Signature}
	proven := approval.Proven{By: approval.ByPasskey, Nonce: p.Nonce, Origin: b.origin(), Assertion: &a}
	known, err := b.Vault.Approvers()
	if err != nil {
		return proven, err
	}
	i := slices.IndexFunc(known, func(k vault.Approver) bool { return k.Kind == "" && bytes.Equal(k.ID, a.CredentialID) })
	if i < 0 {
		return proven, errNotEnrolled
	}
	proven.Name, proven.Key = known[i].Name, known[i].Key
	count, err := approval.Passkey{ID: known[i].ID, Key: known[i].Key}.Verify(message, proven.Origin, a)
	if err == nil {
		err = approval.Counted(known[i].Count, count)
	}
	if err != nil || count == 0 {
		return proven, err
	}
	// The count is kept before the answer counts: a copy that comes a moment
	// later is noticed.
	if err = b.Vault.CountApprover(a.CredentialID, count); errors.Is(err, vault.ErrCounted) {
		err = approval.ErrCounter
	}
	if errors.Is(err, vault.ErrNoApprover) {
		err = errNotEnrolled
	}
	return proven, err
}

var errNotEnrolled = notEnrolled{}

type notEnrolled struct{}

func (notEnrolled) Error() string { return "this passkey may not prove anything here" }
func (notEnrolled) Unwrap() error { return approval.ErrPasskey }

func staleNonce() *wire.Error {
	return wire.Errorf(wire.CodeProofInvalid, "The proof's nonce is unknown, used or too old.")
}

// checkPasskeyAct checks a passkey's answer for anything but a decision, whose
// own row has it.
func (o *operator) checkPasskeyAct(method string, m wire.Managed) *wire.Error {
	switch method {
	case wire.MethodVaultSetSlot, wire.MethodKeychainSet, wire.MethodPasskeyAdd, wire.MethodTouchIDAdd:
		e := wire.Errorf(wire.CodeProofRequired, "What opens the vault, and who may approve, is changed with the passphrase only.")
		e.NextStep = "Prove with the passphrase or the recovery code."
		return e
	}
	if method == wire.MethodSecretSet || method == wire.MethodSecretRotate {
		return o.checkPasskeyValue(method, m)
	}
	proven, fail := o.checkPasskey(method, approval.ProofMessage(method, m.Request, m.Proof.Nonce), m.Proof)
	if fail != nil {
		return fail
	}
	sum := sha256.Sum256(m.Request)
	request := map[string]any{"method": method, "passkey": proven.Name, "request_sha256": hex.EncodeToString(sum[:])}
	return o.row("proof.passkey", request, map[string]any{"proof": proven})
}

// checkPasskeyValue checks a passkey's answer for storing a value: over which
// credential it is for, of which kind and place, but not over the value, of which
// neither the browser's challenge nor the row may tell anything.
func (o *operator) checkPasskeyValue(method string, m wire.Managed) *wire.Error {
	var r wire.SecretSet
	defer func() { clear(r.Value) }()
	if err := wire.DecodeParams(m.Request, &r); err != nil {
		return wire.Errorf(wire.CodeBadRequest, "%s", err.Message)
	}
	open := o.b.state()
	if open == nil {
		return wire.NewError(wire.CodeLocked)
	}
	declared, ok := place(open.policy, r.Name)
	if !ok {
		return o.vaultFailed("storing a value", vault.ErrUndeclared)
	}
	v := approval.Value{Method: method, Name: declared.Name, Kind: declared.Kind, Place: declared.Place}
	proven, fail := o.checkPasskey(method, v.Message(m.Proof.Nonce), m.Proof)
	if fail != nil {
		return fail
	}
	request := map[string]any{"method": method, "passkey": proven.Name, "name": v.Name, "kind": v.Kind, "place": v.Place}
	return o.row("proof.passkey", request, map[string]any{"proof": proven})
}

// listPasskeys lists them, to whoever may read.
func (o *operator) listPasskeys() (any, *wire.Error) {
	l := wire.List[wire.Passkey]{Items: []wire.Passkey{}}
	known, err := o.b.Vault.Approvers()
	if errors.Is(err, vault.ErrLocked) {
		return l, nil
	}
	if err != nil {
		return nil, o.vaultFailed("listing the passkeys", err)
	}
	if !o.mayRead() {
		l.Hidden = len(known)
		return l, nil
	}
	for _, a := range known {
		l.Items = append(l.Items, wire.Passkey{Kind: a.Kind, Name: a.Name, ID: a.ID, AddedAt: a.AddedAt, Transports: append([]string{}, a.Transports...),
			Fingerprint: approval.Passkey{ID: a.ID, Key: a.Key}.Fingerprint()})
	}
	return l, nil
}

// addPasskey lets a passkey prove from now on. The person's passphrase was the
// proof, over the very bytes of what the browser handed over; the challenge that
// the new passkey answered has the proof's nonce. The row comes first.
func (o *operator) addPasskey(r wire.PasskeyAdd, nonce string) (any, *wire.Error) {
	origin := o.b.origin()
	if origin == "" {
		return nil, noConsole()
	}
	if name := approval.Escape(r.Name, 64); name != r.Name || name == "" {
		return nil, wire.Errorf(wire.CodeBadRequest, "A passkey's name has 1 to 64 plain characters.")
	}
	k, count, err := approval.NewPasskey(approval.EnrolMessage(r.Name, nonce), origin,
		approval.Registration{ClientData: r.ClientData, Attestation: r.Attestation})
	if err != nil {
		e := wire.Errorf(wire.CodeProofInvalid, "%v; nothing was changed.", err)
		e.NextStep = "Start again on the console's own page."
		return nil, e
	}
	if known, err := o.b.Vault.Approvers(); err != nil {
		return nil, o.passkeyFailed("adding a passkey", err)
	} else if slices.ContainsFunc(known, func(a vault.Approver) bool { return a.Name == r.Name || bytes.Equal(a.ID, k.ID) }) {
		return nil, o.passkeyFailed("adding a passkey", vault.ErrApproverThere)
	}
	a := vault.Approver{Name: r.Name, ID: k.ID, Key: k.Key, Count: count, Transports: r.Transports, AddedAt: o.b.Clock.Now()}
	request := map[string]any{"name": a.Name, "credential_id": k.ID, "public_key": k.Key, "public_key_sha256": k.Fingerprint()}
	if fail := o.row("passkey.added", request, nil); fail != nil {
		return nil, fail
	}
	if err := o.b.Vault.AddApprover(a); err != nil {
		fail := o.passkeyFailed("adding a passkey", err)
		o.row("passkey.removed", request, map[string]any{"code": fail.Code, "message": fail.Message})
		return nil, fail
	}
	return wire.Passkey{Name: a.Name, ID: a.ID, Fingerprint: k.Fingerprint(), Transports: append([]string{}, a.Transports...), AddedAt: a.AddedAt}, nil
}

// removePasskey takes a passkey, or a Touch ID key, back, and with it what proofs have opened and
// the challenges that wait for an answer. It takes a proof although it narrows:
// whoever drives the person back to the passphrase may be waiting for it.
func (o *operator) removePasskey(r wire.PasskeyName) (any, *wire.Error) {
	known, err := o.b.Vault.Approvers()
	if err == nil {
		err = o.b.Vault.RemoveApprover(r.Name)
	}
	if err != nil {
		return nil, o.passkeyFailed("removing a passkey", err)
	}
	request := map[string]any{"name": clip(r.Name)}
	row := "passkey.removed"
	for _, a := range known {
		if a.Name == r.Name {
			request["credential_id"] = approval.Bytes(a.ID)
			if a.Kind == vault.KindTouchID {
				row = "touchid.removed"
			}
		}
	}
	o.narrow(row, request)
	for _, other := range o.b.everyOperator() {
		other.forgetProofs()
	}
	return wire.Empty{}, nil
}

func (o *operator) passkeyFailed(doing string, err error) *wire.Error {
	fail := o.vaultFailed(doing, err)
	switch {
	case errors.Is(err, vault.ErrApproverThere):
		return wire.Errorf(wire.CodeBadRequest, "There is a passkey or a Touch ID key of this name, or this one is there already.")
	case errors.Is(err, vault.ErrNoApprover):
		fail = wire.Errorf(wire.CodeBadRequest, "There is no such passkey or Touch ID key.")
		fail.NextStep = "List them: yett passkey list."
	}
	return fail
}

func noConsole() *wire.Error {
	e := wire.Errorf(wire.CodeBadRequest, "There is no console, so no passkey can be asked for.")
	e.NextStep = "Start the broker with its console, and open it: yett console."
	return e
}

// clickLife is how long a proof lets a console session decide by a click.
const clickLife = 15 * time.Minute

// openClicks lets a page of the console decide by a click for a while, within
// what clickable says.
func (o *operator) openClicks() (any, *wire.Error) {
	if _, onPage := o.who.(*Page); !onPage {
		return nil, wire.Errorf(wire.CodeBadRequest, "Only a page of the console decides by a click.")
	}
	if fail := o.row("clicks.opened", nil, nil); fail != nil {
		return nil, fail
	}
	o.proving.Lock()
	defer o.proving.Unlock()
	o.clicks = o.b.Clock.SinceBoot() + clickLife
	return wire.ClickUntil{Until: o.b.Clock.Now().Add(clickLife)}, nil
}

// mayClick reports whether a proof lets this page decide by a click now.
func (o *operator) mayClick() bool {
	o.proving.Lock()
	defer o.proving.Unlock()
	return o.b.Clock.SinceBoot() < o.clicks
}

// checkClick is the proof of a decision by a click.
func (o *operator) checkClick(cards []wire.CardNamed, p *wire.Proof) (approval.Proven, *wire.Error) {
	if o.b.state() == nil {
		return approval.Proven{}, wire.NewError(wire.CodeLocked)
	}
	if !o.takeNonce(p.Nonce) {
		return approval.Proven{}, staleNonce()
	}
	defer o.b.use()()
	if !o.mayClick() {
		return approval.Proven{}, wire.NewError(wire.CodeProofRequired)
	}
	for _, c := range cards {
		item, err := o.b.queue.Get(c.ApprovalID)
		if err == nil && !approval.Clickable(item.Card) {
			e := wire.Errorf(wire.CodeProofRequired, "A click is not enough for what this card gives.")
			e.NextStep = "Approve it with a passkey or the passphrase."
			return approval.Proven{}, e
		}
	}
	return approval.Proven{By: approval.ByClick, Nonce: p.Nonce}, nil
}
