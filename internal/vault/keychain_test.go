package vault

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/yett-broker/yett/internal/durable"
)

// addShare gives a vault a new share, and returns it with its unlock key.
func addShare(t testing.TB, v *Vault) (salt, share, unlock []byte) {
	t.Helper()
	share, salt = NewShare()
	unlock, err := ShareUnlockKey(share, salt)
	must(t, err)
	must(t, v.SetKeychain(salt, unlock))
	return salt, share, unlock
}

// TestKeychainSlot: a share opens the vault beside passphrase and code, another
// share and another salt do not, and the slot proves nothing.
func TestKeychainSlot(t *testing.T) {
	v, m := withSecrets(t)
	salt, share, unlock := addShare(t, v)
	slots := v.Slots()
	if len(slots) != 3 || slots[2].Name != SlotKeychain || !bytes.Equal(slots[2].KDF.Salt, salt) {
		t.Fatalf("the slots are %+v", slots)
	}
	proof := Proof(m.pass.Approval, []byte("message"))
	v.Lock()
	v, err := Load(v.dir)
	must(t, err)
	wrong := func(what string, share, salt []byte) {
		key, err := ShareUnlockKey(share, salt)
		must(t, err)
		if v.Unlock(SlotKeychain, key) == nil {
			t.Errorf("%s opens the vault", what)
		}
	}
	other, otherSalt := NewShare()
	wrong("another share", other, salt)
	wrong("the share with another salt", share, otherSalt)
	wrong("no share", make([]byte, ShareSize), salt)
	wantErr(t, v.Unlock(SlotPassphrase, unlock), ErrWrongKey)
	must(t, v.Unlock(SlotKeychain, unlock))
	defer v.Lock()
	wantValue(t, v, api, "token-0123456789")
	must(t, v.VerifyProof([]byte("message"), proof))
	for what, key := range map[string][]byte{"the unlock key": unlock, "the share": share, "zeros": make([]byte, keySize)} {
		if v.VerifyProof([]byte("message"), Proof(key, []byte("message"))) == nil {
			t.Errorf("%s proves", what)
		}
	}
	if bytes.Contains(v.Image(), share) || bytes.Contains(v.Image(), unlock) {
		t.Error("the file has the share in the clear")
	}
}

// TestKeychainSlotRemoved: a share opens nothing that was saved after its slot was
// removed or changed, also with the data key of an old copy; an old copy of the
// file opens with what opened it then.
func TestKeychainSlotRemoved(t *testing.T) {
	v, m := withSecrets(t)
	salt, _, first := addShare(t, v)
	old, err := openImage(v.Image(), m)
	must(t, err)
	defer old.Lock()
	_, _, second := addShare(t, v)
	if bytes.Equal(v.Slots()[2].KDF.Salt, salt) || len(v.Slots()) != 3 {
		t.Errorf("the slots are %+v", v.Slots())
	}
	if _, _, err := v.file.openPayload(old.open.keys.data()); err == nil {
		t.Error("changing the share keeps the data key")
	}
	before, err := openImage(v.Image(), m)
	must(t, err)
	defer before.Lock()
	must(t, v.RemoveKeychain())
	must(t, v.Renew())
	wantErr(t, v.RemoveKeychain(), ErrNoKeychain)
	if _, _, err := v.file.openPayload(before.open.keys.data()); err == nil {
		t.Error("removing the slot keeps the data key")
	}
	for _, name := range []string{FileName, FileName + durable.Previous} {
		image, err := os.ReadFile(filepath.Join(v.dir, name))
		must(t, err)
		b, err := Parse(image)
		must(t, err)
		for _, key := range [][]byte{first, second} {
			wantErr(t, b.Unlock(SlotKeychain, key), ErrWrongKey)
		}
		must(t, b.Unlock(SlotRecovery, m.recovery.Unlock))
		wantValue(t, b, api, "token-0123456789")
		b.Lock()
	}
	// The older file, put back: its own share opens it, the later one does not.
	back, err := Parse(old.Image())
	must(t, err)
	wantErr(t, back.Unlock(SlotKeychain, second), ErrWrongKey)
	must(t, back.Unlock(SlotKeychain, first))
	back.Lock()
	must(t, v.VerifyProof([]byte("m"), Proof(m.pass.Approval, []byte("m"))))
	must(t, v.VerifyProof([]byte("m"), Proof(m.recovery.Approval, []byte("m"))))
}

// TestKeychainSlotOfAnOldVault: a vault whose other slots are of version 1 gets the
// slot and loses it, and opens with its passphrase all along.
func TestKeychainSlotOfAnOldVault(t *testing.T) {
	v := version1Vault(t)
	pass := slotKeys(t, v, SlotPassphrase, version1Passphrase)
	must(t, v.Unlock(SlotPassphrase, pass.Unlock))
	_, _, unlock := addShare(t, v)
	reopened := func() *Vault {
		v.Lock()
		v, err := Load(v.dir)
		must(t, err)
		t.Cleanup(v.Lock)
		return v
	}
	v = reopened()
	must(t, v.Unlock(SlotKeychain, unlock))
	must(t, v.Unlock(SlotPassphrase, pass.Unlock))
	must(t, v.RemoveKeychain())
	v = reopened()
	wantErr(t, v.Unlock(SlotKeychain, unlock), ErrWrongKey)
	must(t, v.Unlock(SlotPassphrase, pass.Unlock))
	wantValue(t, v, api, "token-0123456789")
}

// TestKeychainSlotHeaders: a header whose keychain slot has the parameters of a
// passphrase, or the other way round, is refused, and so is a share under another
// name.
func TestKeychainSlotHeaders(t *testing.T) {
	v, m := newVault(t)
	salt, _, unlock := addShare(t, v)
	good := v.Slots()
	for what, spoil := range map[string]func(*header){
		"a cost":             func(h *header) { h.Slots[2].KDF.Time = 3 },
		"memory":             func(h *header) { h.Slots[2].KDF.MemoryKiB = 64 << 10 },
		"threads":            func(h *header) { h.Slots[2].KDF.Threads = 1 },
		"a short salt":       func(h *header) { h.Slots[2].KDF.Salt = salt[:15] },
		"a form of a phrase": func(h *header) { h.Slots[2].KDF.Form = FormNFC },
		"a phrase's numbers": func(h *header) { h.Slots[2].KDF = good[0].KDF },
		"a share's numbers":  func(h *header) { h.Slots[0].KDF = good[2].KDF },
		"no public key":      func(h *header) { h.Slots[2].Public, h.Slots[2].Wrapped = nil, make([]byte, boxSize) },
		"twice":              func(h *header) { h.Slots = append(h.Slots, h.Slots[2]) },
	} {
		h := v.file.header
		h.Slots = append([]sealedSlot{}, h.Slots...)
		spoil(&h)
		if _, err := sealContent(h, v.open.keys, v.open.content); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if v.SetKeychain(salt[:8], unlock) == nil || v.SetKeychain(salt, unlock[:31]) == nil {
		t.Error("a key of a wrong size was taken")
	}
	kdf := NewKDF()
	if v.SetSlot(SlotKeychain, kdf, &Keys{Unlock: m.pass.Unlock, Approval: m.pass.Approval}) == nil {
		t.Error("a passphrase was taken for the keychain slot")
	}
	if _, err := Derive([]byte("a passphrase"), good[2].KDF); err == nil {
		t.Error("a passphrase was derived without cost")
	}
	v.Lock()
	wantErr(t, v.SetKeychain(salt, unlock), ErrLocked)
	wantErr(t, v.RemoveKeychain(), ErrLocked)
}
