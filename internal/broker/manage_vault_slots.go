package broker

import (
	"bytes"
	"errors"
	"runtime/debug"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// setSlot gives the vault another passphrase or another recovery code. The row
// comes first. The vault is saved in one step, so that a crash leaves the old
// way in or the new one; what was proven with the old one is void afterwards.
func (o *operator) setSlot(r wire.SlotSet) (any, *wire.Error) {
	defer clear(r.UnlockKey)
	defer clear(r.ApprovalKey)
	b := o.b
	request := map[string]any{"slot": clip(r.Slot.Name)}
	if fail := o.row("slot.set", request, nil); fail != nil {
		return nil, fail
	}
	kdf := vault.KDF{Salt: r.Slot.Salt, Time: r.Slot.Time, MemoryKiB: r.Slot.MemoryKiB, Threads: r.Slot.Threads, Form: r.Slot.Form}
	keys := &vault.Keys{Unlock: r.UnlockKey, Approval: r.ApprovalKey}
	err := b.Vault.SetSlot(r.Slot.Name, kdf, keys)
	set := err == nil || b.slotHas(r.Slot)
	if set {
		b.voidProofs()
	}
	if err != nil {
		fail := o.vaultFailed("changing the "+clip(r.Slot.Name)+" slot", err)
		if set { // the disk failed behind the last step
			fail = wire.Errorf(wire.CodeInternal, "It was changed, but the disk did not confirm it: after a power cut the old one may be valid again.")
			fail.NextStep = "Keep both until a later change has worked, and look at the disk."
		}
		o.row("slot.set", request, map[string]any{"code": fail.Code, "message": fail.Message, "changed": set})
		return nil, fail
	}
	return b.renewed(), nil
}

// renewed saves the vault once more, so that its previous generation on the disk
// does not open with what was valid before either.
func (b *Broker) renewed() wire.SlotWasSet {
	done := wire.SlotWasSet{}
	if err := b.Vault.Renew(); err != nil {
		b.Log.Error("saving the vault once more", "error", err)
		done.Warning = "The previous generation of the vault still lies on the disk and opens with what was valid before; the next change replaces it."
	}
	done.Generation = b.Vault.Generation()
	return done
}

// setKeychain lets a share of the login keychain open the vault. It proves
// nothing, so no proof is void by it.
func (o *operator) setKeychain(r wire.KeychainSet) (any, *wire.Error) {
	defer clear(r.UnlockKey)
	return o.changeKeychain("slot.set", func() error { return o.b.Vault.SetKeychain(r.Salt, r.UnlockKey) })
}

func (o *operator) removeKeychain() (any, *wire.Error) {
	return o.changeKeychain("slot.removed", o.b.Vault.RemoveKeychain)
}

// changeKeychain changes the keychain slot. The row comes first.
func (o *operator) changeKeychain(kind string, change func() error) (any, *wire.Error) {
	request := map[string]any{"slot": vault.SlotKeychain}
	if fail := o.row(kind, request, nil); fail != nil {
		return nil, fail
	}
	if err := change(); err != nil {
		fail := o.vaultFailed("changing the keychain slot", err)
		if errors.Is(err, vault.ErrNoKeychain) {
			fail = wire.Errorf(wire.CodeBadRequest, "The vault has no keychain slot.")
		}
		o.row(kind, request, map[string]any{"code": fail.Code, "message": fail.Message})
		return nil, fail
	}
	return o.b.renewed(), nil
}

// slotHas reports whether the vault's slot was made with s.
func (b *Broker) slotHas(s wire.ChallengeSlot) bool {
	for _, have := range b.Vault.Slots() {
		if have.Name == s.Name {
			return bytes.Equal(have.KDF.Salt, s.Salt)
		}
	}
	return false
}

// voidProofs takes back what somebody opened with a proof that is no longer
// valid: reading, nonces, and the cards that wait for a decision.
func (b *Broker) voidProofs() {
	for _, o := range b.everyOperator() {
		o.forgetProofs()
	}
	b.queue.WithdrawIf(func(*approval.Item) bool { return true }, wire.ReasonRevoked)
}

// returnMemory gives back to the system what unlocking took and what locking
// left. Pages that are given back hold no copy of a key or a value any more.
func returnMemory() { go debug.FreeOSMemory() }
