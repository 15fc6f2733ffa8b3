package vault

import (
	"bytes"
	"crypto/hpke"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/durable"
)

func TestCreateLoadUnlock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	code, err := Create(dir, []byte("hunter22"))
	must(t, err)
	v, err := Load(dir)
	must(t, err)
	if !v.Locked() || v.Generation() != 1 {
		t.Errorf("locked %v, generation %d", v.Locked(), v.Generation())
	}
	slots := v.Slots()
	if len(slots) != 2 || slots[0].Name != SlotPassphrase || slots[1].Name != SlotRecovery {
		t.Fatalf("slots %+v", slots)
	}
	if bytes.Equal(slots[0].KDF.Salt, slots[1].KDF.Salt) {
		t.Error("two slots share a salt")
	}
	normal, err := NormalizeRecovery([]byte(strings.ToLower(code)))
	must(t, err)
	for i, secret := range [][]byte{[]byte("hunter22"), normal} {
		keys, err := Derive(secret, slots[i].KDF)
		must(t, err)
		must(t, v.Unlock(slots[i].Name, keys.Unlock))
		must(t, v.VerifyProof([]byte("m"), Proof(keys.Approval, []byte("m"))))
		v.Lock()
	}
	_, err = Create(dir, []byte("hunter22"))
	wantErr(t, err, ErrExists)
}

func TestLockedGivesNothing(t *testing.T) {
	v, m := withSecrets(t)
	v.Lock()
	v.Lock()
	_, e1 := v.AuditPrivateKey()
	_, e2 := v.Subkey("x")
	_, e3 := v.Policy()
	_, e4 := v.Secrets()
	_, e5 := v.Apply(nil, nil)
	_, e6 := v.LedgerHead()
	for i, err := range []error{
		e1, e2, e3, e4, e5, e6,
		v.VerifyProof([]byte("m"), Proof(m.pass.Approval, []byte("m"))),
		v.SetSecret(api.Name, []byte("12345678"), true),
		v.RemoveSecret(api.Name),
		v.SetLedgerHead([]byte("x")),
		v.SetSlot(SlotPassphrase, NewKDF(), m.pass),
		restoreError(v, t.TempDir()),
		v.Use(api.Name, api, func([]byte) error { t.Error("lent while locked"); return nil }),
	} {
		if !errors.Is(err, ErrLocked) {
			t.Errorf("%d: %v", i, err)
		}
	}
	must(t, v.Unlock(SlotRecovery, m.recovery.Unlock))
	wantValue(t, v, api, "token-0123456789")
}

func TestWrongKey(t *testing.T) {
	v, m := newVault(t)
	for _, unlocked := range []bool{true, false} {
		if !unlocked {
			v.Lock()
		}
		for _, key := range [][]byte{m.recovery.Unlock, m.pass.Approval, make([]byte, 32), nil, m.pass.Unlock[:31]} {
			err := v.Unlock(SlotPassphrase, key)
			wantErr(t, err, ErrWrongKey)
			if errors.Is(err, ErrDamaged) {
				t.Error("a wrong key is taken for damage")
			}
		}
		wantErr(t, v.Unlock("tpm", m.pass.Unlock), ErrWrongKey)
		if v.Locked() == unlocked {
			t.Error("a wrong key changed the state")
		}
	}
	wrong, err := Derive([]byte("correct horse batterx"), v.Slots()[0].KDF)
	must(t, err)
	wantErr(t, v.Unlock(SlotPassphrase, wrong.Unlock), ErrWrongKey)
}

func TestNoVault(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	for _, d := range []string{dir, filepath.Join(dir, "absent")} {
		_, err := Load(d)
		wantErr(t, err, ErrNoVault)
	}
	// Only the previous generation: no crash leaves that, so it is not "none".
	must(t, os.WriteFile(filepath.Join(dir, FileName+durable.Previous), []byte("x"), 0o600))
	_, err := Load(dir)
	wantErr(t, err, ErrDamaged)
	_, err = Create(dir, []byte(goodPassphrase))
	wantErr(t, err, ErrExists)
}

func TestPassphraseShort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	for _, p := range []string{"", "1234567", "äöüäöüä"} {
		_, err := Create(dir, []byte(p))
		wantErr(t, err, ErrPassphraseShort)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("a refused vault left a directory")
	}
}

func TestDirectory(t *testing.T) {
	base := t.TempDir()
	empty, full, file, link := filepath.Join(base, "empty"), filepath.Join(base, "full"), filepath.Join(base, "file"), filepath.Join(base, "link")
	must(t, errors.Join(
		os.Mkdir(empty, 0o755), os.Mkdir(full, 0o755),
		os.WriteFile(filepath.Join(full, "x"), nil, 0o600),
		os.WriteFile(file, nil, 0o600), os.Symlink(empty, link),
		os.Chmod(empty, 0o755), os.Chmod(full, 0o755)))
	for _, dir := range []string{full, file, link} {
		if _, err := Create(dir, []byte(goodPassphrase)); err == nil {
			t.Errorf("%s was accepted", filepath.Base(dir))
		}
	}
	if info, _ := os.Stat(full); info.Mode().Perm() != 0o755 {
		t.Error("the mode of a refused directory was changed")
	}
	_, err := Create(empty, []byte(goodPassphrase))
	must(t, err)
	if info, _ := os.Stat(empty); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
	must(t, os.Chmod(empty, 0o750))
	if _, err := Load(empty); err == nil {
		t.Error("a directory that others may enter was accepted")
	}
	if os.Geteuid() == 0 {
		must(t, errors.Join(os.Chmod(empty, 0o700), os.Chown(empty, 12345, 12345)))
		if _, err := Load(empty); err == nil {
			t.Error("another account's directory was accepted")
		}
	}
}

func TestV01_ModeWhateverTheUmask(t *testing.T) {
	m, err := makeOnce()
	must(t, err)
	for _, mask := range []int{0, 0o777} {
		dir := filepath.Join(t.TempDir(), "x", "y")
		must(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o700))
		old := syscall.Umask(mask)
		_, err := Create(dir, []byte(goodPassphrase))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, FileName), m.image, 0)) // the mode stays
		v := loadUnlocked(t, dir, m)
		must(t, v.SetLedgerHead([]byte("x")))
		syscall.Umask(old)
		for path, want := range map[string]os.FileMode{
			dir: 0o700 | os.ModeDir, filepath.Dir(dir): 0o700 | os.ModeDir,
			filepath.Join(dir, FileName): 0o600, filepath.Join(dir, FileName+durable.Previous): 0o600,
			filepath.Join(dir, lockName): 0o600,
		} {
			if info, err := os.Lstat(path); err != nil || info.Mode() != want {
				t.Errorf("umask %#o: %s is %v, %v", mask, filepath.Base(path), info, err)
			}
		}
	}
}

func TestV01_SymlinkRefused(t *testing.T) {
	v, m := newVault(t)
	path, real := filepath.Join(v.dir, FileName), filepath.Join(v.dir, "elsewhere")
	must(t, os.Rename(path, real))
	must(t, os.Symlink(real, path))
	_, err := Load(v.dir)
	wantErr(t, err, durable.ErrUnsafe)
	if err := v.SetLedgerHead([]byte("x")); err == nil {
		t.Error("saved through a symlink")
	}
	if b, err := os.ReadFile(real); err != nil || !bytes.Equal(b, m.image) {
		t.Error("the symlink's target was changed")
	}
}

func TestAuditKey(t *testing.T) {
	v, _ := newVault(t)
	private, err := v.AuditPrivateKey()
	must(t, err)
	v.Lock()
	public, err := auditKEM().NewPublicKey(v.AuditPublicKey())
	must(t, err)
	box, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), nil, []byte("epoch"))
	must(t, err)
	key, err := auditKEM().NewPrivateKey(private)
	must(t, err)
	plain, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), nil, box)
	must(t, err)
	if string(plain) != "epoch" {
		t.Error("the audit keys do not belong together")
	}
}

func TestSubkeys(t *testing.T) {
	v, m := newVault(t)
	a, err := v.Subkey("ledger")
	must(t, err)
	b, err := v.Subkey("cards")
	must(t, err)
	again, err := loadUnlocked(t, v.dir, m).Subkey("ledger")
	must(t, err)
	if len(a) != 32 || bytes.Equal(a, b) || !bytes.Equal(a, again) {
		t.Error("subkeys are not one for each purpose")
	}
}

func TestProofs(t *testing.T) {
	v, m := newVault(t)
	msg := []byte("card digest, choice, until, nonce")
	must(t, v.VerifyProof(msg, Proof(m.pass.Approval, msg)))
	must(t, v.VerifyProof(msg, Proof(m.recovery.Approval, msg)))
	good := Proof(m.pass.Approval, msg)
	for _, mac := range [][]byte{
		nil, good[:31], append(bytes.Clone(good), 0), make([]byte, 32),
		Proof(m.pass.Unlock, msg), Proof(m.pass.Approval, append(msg, 'x')), Proof(nil, msg), Proof(make([]byte, 32), msg),
	} {
		wantErr(t, v.VerifyProof(msg, mac), ErrWrongProof)
	}
}

func TestSetSlot(t *testing.T) {
	v, m := withSecrets(t)
	kdf := NewKDF()
	keys, err := Derive([]byte("another passphrase"), kdf)
	must(t, err)
	must(t, v.SetSlot(SlotPassphrase, kdf, keys))
	wantErr(t, v.VerifyProof(nil, Proof(m.pass.Approval, nil)), ErrWrongProof)
	must(t, v.VerifyProof(nil, Proof(keys.Approval, nil)))
	must(t, v.VerifyProof(nil, Proof(m.recovery.Approval, nil)))

	w, err := Load(v.dir)
	must(t, err)
	wantErr(t, w.Unlock(SlotPassphrase, m.pass.Unlock), ErrWrongKey)
	must(t, w.Unlock(SlotPassphrase, keys.Unlock))
	wantValue(t, w, api, "token-0123456789")
	w.Lock()
	must(t, w.Unlock(SlotRecovery, m.recovery.Unlock))
	w.Lock()
	if err := v.SetSlot("tpm", kdf, keys); err == nil {
		t.Error("an unknown slot was set")
	}
	wantErr(t, v.SetSlot(SlotPassphrase, KDF{}, keys), ErrKDF)
}

// What is on disk shows neither a value nor a name nor a place, in no encoding
// that a search would use.
func TestNothingReadableOnDisk(t *testing.T) {
	v, _ := newVault(t)
	const canary, second = "CANARY-5f2c9e71d0", "CANARY-77aa10bb2c"
	_, err := v.Apply([]byte("policy of "+canary), []Declared{api, sshKey})
	must(t, err)
	must(t, v.SetSecret(api.Name, []byte(canary), false))
	must(t, v.SetSecret(api.Name, []byte(second), true))
	must(t, v.SetLedgerHead([]byte("x")))

	writeFile = func(path string, data []byte, keep bool) error { // leaves what a killed writer leaves
		must(t, os.WriteFile(filepath.Join(v.dir, ".vault.yett.tmp-LEFT"), data, 0o600))
		return errors.New("no")
	}
	defer func() { writeFile = durable.WriteFile }()
	if v.SetLedgerHead([]byte("y")) == nil {
		t.Error("no error")
	}
	files := readDir(t, v.dir)
	if len(files) != 4 {
		t.Fatalf("%d files, want vault, previous, lock and temporary", len(files))
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s))[:8] }
	for name, b := range files {
		if contains(b, "CANARY", b64(canary), b64(second), api.Name, "billing.example", sshKey.Name, "web1") {
			t.Errorf("%s can be read", name)
		}
	}
}

// Of several first runs at once one makes the vault, and the code that it
// printed is the vault's.
func TestCreateAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	codes := make(chan string, 4)
	var wg sync.WaitGroup
	for range cap(codes) {
		wg.Go(func() {
			code, err := Create(dir, []byte(goodPassphrase))
			if err == nil {
				codes <- code
			} else if !errors.Is(err, ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(codes) != 1 {
		t.Fatalf("%d vaults were made in one place", len(codes))
	}
	v, err := Load(dir)
	must(t, err)
	normal, err := NormalizeRecovery([]byte(<-codes))
	must(t, err)
	keys, err := Derive(normal, v.Slots()[1].KDF)
	must(t, err)
	must(t, v.Unlock(SlotRecovery, keys.Unlock))
	v.Lock()
}

func TestLockWipes(t *testing.T) {
	v, _ := newVault(t)
	keys := v.open.keys
	v.Lock()
	if keys.mem.bytes != nil || keys.mem.mapped != nil {
		t.Error("locking leaves the keys in memory")
	}
	b := []byte("a key that had to lie in the heap")
	(&lockedMemory{bytes: b}).free()
	if !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("a freed key is not wiped")
	}
	k := &Keys{Unlock: []byte("unlock"), Approval: []byte("approval")}
	k.Wipe()
	if !bytes.Equal(append(k.Unlock, k.Approval...), make([]byte, 14)) {
		t.Error("wiped keys are still there")
	}
}

func BenchmarkUse(b *testing.B) {
	v, _ := withSecrets(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = v.Use(api.Name, api, func([]byte) error { return nil })
		}
	})
}

func BenchmarkDeriveDefault(b *testing.B) {
	for b.Loop() {
		_, _ = Derive([]byte(goodPassphrase), KDF{Salt: make([]byte, 16), Time: 3, MemoryKiB: 64 << 10, Threads: 1})
	}
}

func BenchmarkSave(b *testing.B) {
	v, _ := withSecrets(b)
	for b.Loop() {
		must(b, v.SetLedgerHead([]byte("x")))
	}
}
