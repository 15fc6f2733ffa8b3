package vault

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/yett-broker/yett/internal/durable"
)

// testdata/version1.yett was written by the release before version 2, under a
// passphrase whose é is two characters.
const (
	version1Passphrase = "cafe\u0301 correct horse"
	version1Code       = "0SMVF-JR30V-5B7WJ-QCTTB-DM78K-9H259-GFP17-J68ZZ"
)

// version1 is the old vault in a directory of its own, locked.
func version1Vault(t *testing.T) *Vault {
	t.Helper()
	image, err := os.ReadFile("testdata/version1.yett")
	must(t, err)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, FileName), image, 0o600))
	v, err := Load(dir)
	must(t, err)
	t.Cleanup(v.Lock)
	return v
}

func slotKeys(t *testing.T, v *Vault, name, secret string) *Keys {
	t.Helper()
	for _, s := range v.Slots() {
		if s.Name == name {
			k, err := Derive([]byte(secret), s.KDF)
			must(t, err)
			return k
		}
	}
	t.Fatalf("no slot %s", name)
	return nil
}

func TestVersion1(t *testing.T) {
	v := version1Vault(t)
	code, err := NormalizeRecovery([]byte(version1Code))
	must(t, err)
	must(t, v.Unlock(SlotRecovery, slotKeys(t, v, SlotRecovery, string(code)).Unlock))
	v.Lock()
	wantErr(t, v.Unlock(SlotPassphrase, slotKeys(t, v, SlotPassphrase, "café correct horse").Unlock), ErrWrongKey)
	pass := slotKeys(t, v, SlotPassphrase, version1Passphrase)
	must(t, v.Unlock(SlotPassphrase, pass.Unlock))
	wantValue(t, v, api, "token-0123456789")

	// The first save makes it version 2 and keeps the old file as it was.
	must(t, v.SetSecret(sshKey.Name, []byte("a key, it says"), false))
	if !bytes.HasPrefix(v.Image(), []byte(magic+version)) {
		t.Fatal("a saved vault is of the old version")
	}
	old, err := os.ReadFile(filepath.Join(v.dir, FileName+durable.Previous))
	must(t, err)
	if fixture, _ := os.ReadFile("testdata/version1.yett"); !bytes.Equal(old, fixture) {
		t.Error("the previous generation is not the old file")
	}
	w, err := Load(v.dir)
	must(t, err)
	must(t, w.Unlock(SlotPassphrase, pass.Unlock)) // the same passphrase, byte by byte
	defer w.Lock()
	wantValue(t, w, api, "token-0123456789")
	wantValue(t, w, sshKey, "a key, it says")
	if head, err := w.LedgerHead(); err != nil || string(head) != "head" {
		t.Errorf("ledger head %q, %v", head, err)
	}
	if policy, err := w.Policy(); err != nil || string(policy) != "policy" {
		t.Errorf("policy %q, %v", policy, err)
	}
}

// A slot of version 1 keeps the data key; the change that leaves none replaces
// it.
func TestVersion1SlotsReplaced(t *testing.T) {
	v := version1Vault(t)
	must(t, v.Unlock(SlotPassphrase, slotKeys(t, v, SlotPassphrase, version1Passphrase).Unlock))
	dataKey := func() string { return string(v.open.keys.data()) }
	first := dataKey()
	kdf := NewKDF()
	keys, err := Derive([]byte("another passphrase"), kdf)
	must(t, err)
	must(t, v.SetSlot(SlotPassphrase, kdf, keys))
	if dataKey() != first {
		t.Error("the data key changed, which the recovery code could not follow")
	}
	code, err := NormalizeRecovery([]byte(version1Code))
	must(t, err)
	w, err := Load(v.dir)
	must(t, err)
	must(t, w.Unlock(SlotRecovery, slotKeys(t, w, SlotRecovery, string(code)).Unlock))
	w.Lock()
	must(t, v.SetSlot(SlotRecovery, kdf, keys))
	if dataKey() == first {
		t.Error("the data key of version 1 stays")
	}
}

// A file that says version 1 has nothing of version 2 in it.
func TestVersion1IsExact(t *testing.T) {
	v, _ := newVault(t)
	image := v.Image()
	image[len(magic)] = '1'
	_, err := Parse(mend(image)) // refused before anything is tried on it
	wantErr(t, err, ErrDamaged)
	for _, bad := range []string{`"public":"",`, `"public":null,`} {
		f, err := parseFile(v.Image())
		must(t, err)
		text, err := json.Marshal(f.header)
		must(t, err)
		text = bytes.Replace(text, []byte(`"wrapped"`), []byte(bad+`"wrapped"`), 1)
		if _, err := parseHeader(text); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
