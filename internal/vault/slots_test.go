package vault

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/yett-broker/yett/internal/durable"
)

// An old copy of the file and the old passphrase open what was in the copy. The
// key that they give opens nothing later.
func TestOldPassphraseOpensNothingLater(t *testing.T) {
	v, m := withSecrets(t)
	old, err := openImage(v.Image(), m)
	must(t, err)
	defer old.Lock()
	for _, slot := range []string{SlotPassphrase, SlotRecovery} {
		before := string(v.open.keys.data())
		kdf := NewKDF()
		keys, err := Derive([]byte("another passphrase"), kdf)
		must(t, err)
		must(t, v.SetSlot(slot, kdf, keys))
		if string(v.open.keys.data()) == before {
			t.Errorf("changing the %s slot keeps the data key", slot)
		}
	}
	if _, _, err := v.file.openPayload(old.open.keys.data()); err == nil {
		t.Error("the data key of an old copy opens the vault")
	}
	wantValue(t, v, api, "token-0123456789")
}

func TestRenewLeavesNothingForTheOldPassphrase(t *testing.T) {
	v, m := withSecrets(t)
	kdf := NewKDF()
	keys, err := Derive([]byte("another passphrase"), kdf)
	must(t, err)
	must(t, v.SetSlot(SlotPassphrase, kdf, keys))
	must(t, v.Renew())
	for _, name := range []string{FileName, FileName + durable.Previous} {
		image, err := os.ReadFile(filepath.Join(v.dir, name))
		must(t, err)
		b, err := Parse(image)
		must(t, err)
		wantErr(t, b.Unlock(SlotPassphrase, m.pass.Unlock), ErrWrongKey)
		must(t, b.Unlock(SlotPassphrase, keys.Unlock))
		b.Lock()
		must(t, b.Unlock(SlotRecovery, m.recovery.Unlock))
		wantValue(t, b, api, "token-0123456789")
		b.Lock()
	}
}

func TestPassphraseForms(t *testing.T) {
	const composed, decomposed = "café correct horse", "cafe\u0301 correct horse"
	kdf := NewKDF()
	if kdf.Form != FormNFC {
		t.Fatal("a new slot takes bytes as they come")
	}
	derive := func(s string, k KDF) string {
		keys, err := Derive([]byte(s), k)
		must(t, err)
		return string(keys.Unlock)
	}
	if derive(composed, kdf) != derive(decomposed, kdf) {
		t.Error("the keyboard decides whether a passphrase opens its vault")
	}
	if derive(composed, kdf) == derive("cafe correct horse", kdf) {
		t.Error("an accent does not count")
	}
	raw := kdf
	raw.Form = ""
	if derive(composed, raw) == derive(decomposed, raw) {
		t.Error("an old slot takes another passphrase than its own")
	}
	if derive(composed, raw) != derive(composed, kdf) || derive("ascii only", raw) != derive("ascii only", kdf) {
		t.Error("what is normal already is changed")
	}
	kdf.Form = "nfd"
	_, err := Derive([]byte(composed), kdf)
	wantErr(t, err, ErrKDF)

	// Eight characters are eight, however they were typed.
	must(t, CheckPassphrase([]byte("e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301")))
	wantErr(t, CheckPassphrase([]byte("e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301")), ErrPassphraseShort)
}

// Locking takes back what is lent only when it is returned, and lends no more.
func TestLockWithAValueLent(t *testing.T) {
	v, m := withSecrets(t)
	var kept []byte
	must(t, v.Use(api.Name, api, func(s []byte) error {
		kept = s
		v.Lock()
		if string(s) != "token-0123456789" {
			t.Error("locking took a value from its borrower")
		}
		wantErr(t, v.Use(api.Name, api, func([]byte) error { t.Error("lent while locked"); return nil }), ErrLocked)
		must(t, v.Unlock(SlotPassphrase, m.pass.Unlock)) // and again while it is lent
		wantValue(t, v, api, "token-0123456789")
		v.Lock()
		return nil
	}))
	if contains(kept, "token") || len(kept) == 0 {
		t.Error("the value outlives the call")
	}
	if !v.Locked() {
		t.Error("returning a value unlocked the vault")
	}
}
