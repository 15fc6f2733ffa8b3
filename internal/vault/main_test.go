package vault

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

const goodPassphrase = "correct horse battery"

// TestMain makes new slots as cheap as the minima allow.
func TestMain(m *testing.M) {
	cost = KDF{Time: minTime, MemoryKiB: minMemoryKiB, Threads: 1}
	if dir := os.Getenv(saverDir); dir != "" {
		os.Exit(saveUntilKilled(dir))
	}
	os.Exit(m.Run())
}

var (
	api    = Declared{"billing", "bearer", "https://api.billing.example"}
	sshKey = Declared{"deploy-key", "ssh-key", "deploy@web1.example.net:22"}
)

// made is one vault on disk with its derived keys. It is made once, since the
// derivations are slow, and copied for each test.
type made struct {
	image    []byte
	code     string
	pass     *Keys
	recovery *Keys
}

var makeOnce = sync.OnceValues(func() (made, error) {
	temp, err := os.MkdirTemp("", "yett-vault-test-")
	if err != nil {
		return made{}, err
	}
	defer os.RemoveAll(temp)
	dir := filepath.Join(temp, "home")
	code, err := Create(dir, []byte(goodPassphrase))
	if err != nil {
		return made{}, err
	}
	v, err := Load(dir)
	if err != nil {
		return made{}, err
	}
	normal, err := NormalizeRecovery([]byte(code))
	if err != nil {
		return made{}, err
	}
	pass, err1 := Derive([]byte(goodPassphrase), v.Slots()[0].KDF)
	recovery, err2 := Derive(normal, v.Slots()[1].KDF)
	return made{image: v.Image(), code: code, pass: pass, recovery: recovery}, errors.Join(err1, err2)
})

// newVault is an unlocked vault in a directory of its own.
func newVault(t testing.TB) (*Vault, made) {
	t.Helper()
	m, err := makeOnce()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, FileName), m.image, 0o600))
	return loadUnlocked(t, dir, m), m
}

func loadUnlocked(t testing.TB, dir string, m made) *Vault {
	t.Helper()
	v, err := Load(dir)
	must(t, err)
	must(t, v.Unlock(SlotPassphrase, m.pass.Unlock))
	t.Cleanup(v.Lock)
	return v
}

// withSecrets is newVault with both declared secrets set.
func withSecrets(t testing.TB) (*Vault, made) {
	t.Helper()
	v, m := newVault(t)
	_, err := v.Apply([]byte("policy"), []Declared{api, sshKey})
	must(t, err)
	must(t, v.SetSecret(api.Name, []byte("token-0123456789"), false))
	must(t, v.SetSecret(sshKey.Name, []byte("-----BEGIN KEY-----\nabc\n"), false))
	return v, m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func wantValue(t testing.TB, v *Vault, d Declared, want string) {
	t.Helper()
	called := false
	err := v.Use(d.Name, d, func(secret []byte) error {
		called = true
		if string(secret) != want {
			return fmt.Errorf("the value of %s is not the one that was set", d.Name)
		}
		return nil
	})
	if err != nil || !called {
		t.Errorf("using %s: %v (called: %v)", d.Name, err, called)
	}
}

// content of the whole directory, for what must not be in it or must not change.
func readDir(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	files := make(map[string][]byte)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		files[e.Name()] = b
	}
	return files
}

func contains(b []byte, parts ...string) bool {
	for _, p := range parts {
		if bytes.Contains(b, []byte(p)) {
			return true
		}
	}
	return false
}
