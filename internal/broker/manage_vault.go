package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	// ledgerCheckTime bounds the check of the ledger at unlocking.
	ledgerCheckTime = 30 * time.Second
	// acknowledgeTime bounds the reading of every row.
	acknowledgeTime = 10 * time.Minute
)

// errEnough ends the reading of rows.
var errEnough = errors.New("enough")

// unlock opens the vault with the unlock key of a slot. The passphrase itself
// never comes here.
func (o *operator) unlock(r wire.Unlock) (any, *wire.Error) {
	defer clear(r.UnlockKey)
	b := o.b
	if err := b.proofs.try(o.who.processKey(), o.who.gone(), func() error { return b.Vault.Unlock(r.Slot, r.UnlockKey) }); err != nil {
		if errors.Is(err, errTrying) {
			return nil, tooManyTries()
		}
		if errors.Is(err, vault.ErrWrongKey) {
			o.narrow("unlock.refused", map[string]any{"slot": clip(r.Slot)})
			return nil, wire.NewError(wire.CodeProofInvalid)
		}
		b.Log.Error("unlocking", "error", err)
		return nil, wire.Errorf(wire.CodeInternal, "The vault cannot be opened: %v.", err).
			Then("Look at the vault file; the previous generation lies beside it with the ending .prev.")
	}
	b.turning.Lock()
	defer b.turning.Unlock()
	told, fail := o.openVault(r.Slot)
	if fail != nil {
		return nil, fail
	}
	u := b.resumePaused()
	u.Notices = told
	return u, nil
}

// openVault records the unlocking and makes what exists only while unlocked.
// What happened to the vault's file meanwhile is told.
func (o *operator) openVault(slot string) (told []string, fail *wire.Error) {
	b := o.b
	defer b.use()()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil {
		return nil, nil
	}
	defer returnMemory()
	open, err := b.openState()
	if err != nil {
		b.Vault.Lock()
		b.Log.Error("unlocking", "error", err)
		return nil, wire.Errorf(wire.CodeInternal, "The vault's content cannot be used.")
	}
	found := b.Vault.Generation() // before anything of this run is saved
	told, fail = o.recordNotes()
	if fail == nil {
		fail = o.row("vault.unlocked", map[string]any{"slot": slot, "generation": b.Vault.Generation()}, nil)
	}
	if fail != nil {
		b.Vault.Lock()
		return nil, fail
	}
	if err := b.unlockBodies(); err != nil {
		b.Vault.Lock()
		b.Log.Error("unlocking", "error", err)
		return nil, wire.Errorf(wire.CodeInternal, "The vault's content cannot be used.")
	}
	o.checkLedger(open, found)
	b.keepHead(open, true)
	b.open = open
	return told, nil
}

// checkLedger compares the ledger with its heads, and the operations of earlier
// runs with their rows, which takes the vault. Unlocking goes on whatever comes
// out, so that the rows can be read; without a good result the ledger takes no
// new actions.
func (o *operator) checkLedger(open *unlocked, generation uint64) {
	b := o.b
	ctx, cancel := context.WithTimeout(context.Background(), ledgerCheckTime)
	defer cancel()
	head, err := b.Vault.LedgerHead()
	if err == nil {
		err = b.Ledger.CheckHead(ctx, ledger.HeadFor{Key: open.log, Vault: head, Generation: generation})
	}
	if err == nil {
		err = b.Ledger.CheckOperations(ctx, open.opener, generation)
	}
	if err != nil {
		b.Log.Error("checking the ledger: no action is taken", "error", err)
		o.row("ledger.refused", nil, map[string]any{"error": err.Error()})
	}
}

// openState makes what exists only while unlocked.
func (b *Broker) openState() (*unlocked, error) {
	text, err := b.Vault.Policy()
	if err != nil {
		return nil, err
	}
	policy, err := access.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading the applied access file: %w", err)
	}
	private, err := b.Vault.AuditPrivateKey()
	if err != nil {
		return nil, err
	}
	defer clear(private)
	opener, err := ledger.NewOpener(private)
	if err != nil {
		return nil, err
	}
	digest, err := b.Vault.Subkey("ledger digests v1")
	if err != nil {
		return nil, err
	}
	log, err := b.logKey()
	if err != nil {
		return nil, err
	}
	return &unlocked{policy: policy, opener: opener, digest: digest, log: log, heads: &heads{}}, nil
}

// lock ends every session and forgets every key.
func (o *operator) lock() (any, *wire.Error) {
	b := o.b
	b.turning.Lock()
	defer b.turning.Unlock()
	b.closeVault()
	for _, other := range b.everyChannel() {
		other.endSession(session.Locked)
	}
	o.narrow("vault.locked", nil)
	return wire.Empty{}, nil
}

// vaultFailed turns an error of the vault into an answer.
func (o *operator) vaultFailed(doing string, err error) *wire.Error {
	said := err.Error()
	e := wire.Errorf(wire.CodeBadRequest, "%s%s.", strings.ToUpper(said[:1]), said[1:])
	switch {
	case errors.Is(err, vault.ErrLocked):
		return wire.NewError(wire.CodeLocked)
	case errors.Is(err, vault.ErrUndeclared):
		e.NextStep = "See what is declared: yett secret list. Another one is declared in the access file: yett apply, or yett add."
	case errors.Is(err, vault.ErrSet):
		e.NextStep = "Replace it with: yett secret rotate NAME."
	case errors.Is(err, vault.ErrNotSet):
		e.NextStep = "Give it a value with: yett secret set NAME."
	case errors.Is(err, vault.ErrTooShort):
		e.NextStep = "Check that the whole value was given."
	case errors.Is(err, vault.ErrUnclean):
		e.NextStep = "Give the value without what surrounds it."
	case errors.Is(err, vault.ErrChanged):
		o.b.Log.Error(doing, "error", err)
		e.Message = "Another program changed the vault's file; it was left as it is, and nothing was changed."
		e.NextStep = "Look at vault.yett and vault.yett.prev. yett stop, then yett up, use what lies there; yett vault restore puts a backup in its place."
	case errors.Is(err, vault.ErrBusy):
		e.NextStep = "Wait until the other command has ended."
	default:
		o.b.Log.Error(doing, "error", err)
		return wire.Errorf(wire.CodeInternal, "%s failed; nothing was changed.", doing)
	}
	return e
}

func (o *operator) setSecret(r wire.SecretSet, rotate bool) (any, *wire.Error) {
	defer clear(r.Value)
	kind := "secret.set"
	if rotate {
		kind = "secret.rotated"
	}
	if fail := o.usable(r.Name, r.Value); fail != nil {
		return nil, fail
	}
	if r.Keep && !rotate && o.b.Vault.Holds(r.Name, r.Value) {
		return wire.SecretKept{There: true}, nil
	}
	// The row comes first: a value that is stored was announced. Were the
	// store to fail afterwards, the second row says so.
	if fail := o.row(kind, map[string]any{"name": clip(r.Name)}, nil); fail != nil {
		return nil, fail
	}
	if err := o.b.Vault.SetSecret(r.Name, r.Value, rotate); err != nil {
		fail := o.vaultFailed("storing a value", err)
		fail.NextStep = strings.ReplaceAll(fail.NextStep, "NAME", clip(r.Name))
		o.row(kind, map[string]any{"name": clip(r.Name)}, map[string]any{"code": fail.Code, "message": fail.Message})
		return nil, fail
	}
	o.b.tokens.forget()
	if r.Keep {
		return wire.SecretKept{}, nil
	}
	return wire.Empty{}, nil
}

// CheckValue says why a value could not be stored for a credential, or never be
// used; nil if it can. The reason never repeats the value.
func CheckValue(c access.Credential, value []byte) error {
	if err := vault.CheckValue(c.Kind, value); err != nil {
		return err
	}
	if c.Kind == access.KindSSHKey {
		return checkValue(c, value)
	}
	return checkValue(c, bytes.TrimRight(value, "\r\n"))
}

// usable refuses a value that could never be used, before it replaces one that
// can. The reason never repeats the value.
func (o *operator) usable(name string, value []byte) *wire.Error {
	open := o.b.state()
	if open == nil {
		return wire.NewError(wire.CodeLocked)
	}
	c, ok := open.policy.Credential(name)
	if !ok || !vault.Clean(c.Kind, value) { // the vault says so
		return nil
	}
	why := CheckValue(c, value)
	if why == nil {
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "The value cannot be used: %v; nothing was changed.", why).
		Then(valueForm(c.Kind))
}

func (o *operator) removeSecret(r wire.SecretName) (any, *wire.Error) {
	if fail := o.row("secret.removed", map[string]any{"name": clip(r.Name)}, nil); fail != nil {
		return nil, fail
	}
	if err := o.b.Vault.RemoveSecret(r.Name); err != nil {
		fail := o.vaultFailed("removing a value", err)
		fail.NextStep = strings.ReplaceAll(fail.NextStep, "NAME", clip(r.Name))
		return nil, fail
	}
	o.b.tokens.forget()
	return wire.Empty{}, nil
}

func (o *operator) listSecrets() (any, *wire.Error) {
	l := wire.List[wire.Secret]{Items: []wire.Secret{}}
	infos, err := o.b.Vault.Secrets()
	if errors.Is(err, vault.ErrLocked) {
		return l, nil
	}
	if err != nil {
		return nil, o.vaultFailed("listing the credentials", err)
	}
	if !o.mayRead() {
		l.Hidden = len(infos)
		return l, nil
	}
	for _, i := range infos {
		s := wire.Secret{Name: i.Name, Kind: i.Kind, Place: i.Place, Set: i.Set}
		if i.Set {
			at := i.SetAt
			s.SetAt = &at
		}
		l.Items = append(l.Items, s)
	}
	return l, nil
}
