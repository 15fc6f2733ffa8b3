package yetttest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/vault"
)

// valueWorks asks for one action with the stored value.
func (b *Broker) valueWorks(t *testing.T) {
	t.Helper()
	c := b.Granted("http:demo.read")
	op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
	if op.State != "completed" || !strings.Contains(string(op.Result), `"status":200`) {
		t.Errorf("an action with the restored value: %+v %s", op, op.Result)
	}
}

type restored struct {
	Generation uint64 `json:"generation"`
	Backup     uint64 `json:"backup_generation"`
	Replaced   uint64 `json:"replaced_generation"`
	Older      bool   `json:"older"`
	Aside      string `json:"aside"`
}

// TestVaultBackupAndRestore: a backup brings back what it had; that it did is
// told at the next unlocking, once, and is a row.
func TestVaultBackupAndRestore(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	file := filepath.Join(t.TempDir(), "backup")
	r := b.Must("vault", "backup", file, "--json")
	var taken struct {
		File       string
		Generation uint64
		Bytes      int
		SHA256     string `json:"sha256"`
	}
	r.JSON(t, &taken)
	image, err := os.ReadFile(file)
	must(t, err)
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode() != 0o600 || taken.Bytes != len(image) || taken.Generation == 0 {
		t.Errorf("%v %s", info.Mode(), r.Stdout)
	}
	if now, err := os.ReadFile(filepath.Join(b.Home, vault.FileName)); err != nil || !bytes.Equal(now, image) {
		t.Errorf("the backup is not the sealed vault: %v", err)
	}
	wantExit(t, b.Run("vault", "backup", file), 1, "is there already", "new file")
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, image) {
		t.Errorf("a second backup wrote the file: %v", err)
	}
	if rows := b.rowsWith(Passphrase, "vault.backup"); len(rows) != 2 || !strings.Contains(string(rows[0].Request), taken.SHA256) {
		t.Errorf("rows %+v", rows)
	}
	b.Must("secret", "remove", "demo")

	wantExit(t, b.Run("vault", "restore", file, "--older"), 1, "A broker has the vault", "yett stop")
	b.Must("lock") // a locked broker has read the file too
	wantExit(t, b.Run("vault", "restore", file, "--older"), 1, "A broker has the vault")
	b.Stop()
	lost, err := os.ReadFile(filepath.Join(b.Home, vault.FileName))
	must(t, err)
	wantExit(t, b.Run("vault", "restore", file), 1, "what was changed in between is lost", "Nothing was changed", "--older")
	wantExit(t, b.RunPlain("vault", "restore", file, "--older"), 3, "proof")
	wantExit(t, b.RunWith("", "wrong horse battery", "vault", "restore", file, "--older"), 3, "The proof does not verify")
	if now, err := os.ReadFile(filepath.Join(b.Home, vault.FileName)); err != nil || !bytes.Equal(now, lost) {
		t.Errorf("a refused restore wrote the vault: %v", err)
	}
	var done restored
	b.Must("vault", "restore", file, "--older", "--json").JSON(t, &done)
	if done.Backup != taken.Generation || done.Replaced <= done.Backup || done.Generation != done.Replaced+1 || !done.Older {
		t.Errorf("%+v", done)
	}
	if aside, err := os.ReadFile(done.Aside); err != nil || !bytes.Equal(aside, lost) {
		t.Errorf("what was there is not kept: %v", err)
	}

	b.Serve()
	wantExit(t, b.Run("unlock"), 0, "note: ", "what had changed in between is lost")
	rows := b.rowsWith(Passphrase, "vault.restored")
	if len(rows) != 1 {
		t.Fatalf("rows %+v", rows)
	}
	var recorded struct {
		Backup   uint64 `json:"backup_generation"`
		Replaced uint64 `json:"replaced_generation"`
		Older    bool
	}
	must(t, json.Unmarshal(rows[0].Request, &recorded))
	if recorded.Backup != done.Backup || recorded.Replaced != done.Replaced || !recorded.Older {
		t.Errorf("the row says %s", rows[0].Request)
	}
	b.valueWorks(t)
	b.Restart()
	if rows := b.rowsWith(Passphrase, "vault.restored"); len(rows) != 1 {
		t.Errorf("it was recorded %d times", len(rows))
	}
	if r := b.Must("audit", "verify", "--rows", "--json"); !strings.Contains(r.Stdout, `"ok":true`) {
		t.Errorf("audit: %s", r.Stdout)
	}
}

// TestVaultRestoreNeedsBothProofs: who knows an old passphrase and has an old
// backup does not bring the old passphrase back.
func TestVaultRestoreNeedsBothProofs(t *testing.T) {
	b := New(t)
	b.Serve()
	b.Unlock()
	file := filepath.Join(t.TempDir(), "backup")
	b.Must("vault", "backup", file)
	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase")
	wantExit(t, r, 0)
	b.Stop()
	wantExit(t, b.Run("vault", "restore", file, "--older"), 3, "--present-passphrase-fd")
	wantExit(t, b.RunWith("", another, "vault", "restore", file, "--older"), 3, "The proof does not verify") // not the backup's
	both := []secretArg{{"--passphrase-fd", Passphrase}, {"--present-passphrase-fd", "wrong horse battery"}}
	r, _ = b.runSecrets(false, both, "vault", "restore", file, "--older")
	wantExit(t, r, 3, "The proof does not verify")
	both[1].line = another
	r, _ = b.runSecrets(false, both, "vault", "restore", file, "--older")
	wantExit(t, r, 0, "is in place")
	b.Serve()
	if !b.opens(Passphrase) || b.opens(another) {
		t.Error("the restored vault opens with something else than the backup did")
	}
}

// TestVaultRestoreInNewHome: a lost machine, or a damaged file. Another vault
// wants its own word.
func TestVaultRestoreInNewHome(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	file := filepath.Join(t.TempDir(), "backup")
	b.Must("vault", "backup", file)
	b.Stop()
	path := filepath.Join(b.Home, vault.FileName)
	must(t, os.WriteFile(path, []byte("rubbish"), 0o600))
	wantExit(t, b.Run("vault", "restore", file), 0, "What was there is kept")
	b.Serve()
	b.Unlock()
	b.valueWorks(t)
	b.Stop()

	must(t, os.RemoveAll(b.Home))
	old := syscall.Umask(0)
	r := b.Run("vault", "restore", file)
	syscall.Umask(old)
	wantExit(t, r, 0, "is in place")
	if info, err := os.Stat(b.Home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the new home: %v, %v", info, err)
	}
	b.Serve()
	wantExit(t, b.Run("unlock"), 0, "restored from a backup")
	b.valueWorks(t)
	b.Stop()

	must(t, os.RemoveAll(b.Home))
	b.RunWith("", Passphrase, "init")
	wantExit(t, b.Run("vault", "restore", file), 1, "of another vault", "--other")
	wantExit(t, b.Run("vault", "restore", file, "--older"), 1, "--other")
	wantExit(t, b.Run("vault", "restore", file, "--other"), 0, "is in place")
}

func TestVaultRestoreRefusesWhatIsNone(t *testing.T) {
	b := New(t)
	dir := t.TempDir()
	path := filepath.Join(b.Home, vault.FileName)
	before, err := os.ReadFile(path)
	must(t, err)
	cut := filepath.Join(dir, "cut")
	must(t, os.WriteFile(cut, before[:len(before)-1], 0o600))
	later := filepath.Join(dir, "later")
	must(t, os.WriteFile(later, laterVersion(before), 0o600))
	for file, says := range map[string]string{
		cut: "damaged", later: "later one", dir: "not a regular file", filepath.Join(dir, "none"): "no such file",
		"/dev/null": "not a regular file",
	} {
		wantExit(t, b.Run("vault", "restore", file), 1, says, "next: ")
	}
	wantExit(t, b.Run("vault", "restore"), 2)
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		t.Errorf("a refused restore wrote the vault: %v", err)
	}
	b.Serve()
	for _, file := range []string{filepath.Join(dir, "none", "x"), dir, "/proc/x"} {
		b.Must("unlock")
		wantExit(t, b.Run("vault", "backup", file), 1, "next: ")
	}
	b.Must("lock")
	wantExit(t, b.Run("vault", "backup", filepath.Join(dir, "x")), 5, "yett unlock")
	if _, err := os.Lstat(filepath.Join(dir, "x")); err == nil {
		t.Error("a refused backup left a file")
	}
}

// TestV05_OlderVaultIsShown: a file that a sync tool put back is told at
// unlocking and is a row.
func TestV05_OlderVaultIsShown(t *testing.T) {
	b := New(t)
	old, err := os.ReadFile(filepath.Join(b.Home, vault.FileName))
	must(t, err)
	b.Serve()
	b.Unlock()
	b.Apply(demoAccess)
	b.SetSecret("demo", canary)
	b.SetSecret("more", canary)
	b.Stop()
	must(t, os.WriteFile(filepath.Join(b.Home, vault.FileName), old, 0o600))
	b.Serve()
	wantExit(t, b.Run("unlock"), 0, "note: ", "older file was put in its place")
	if rows := b.rowsWith(Passphrase, "vault.rolled_back"); len(rows) != 1 {
		t.Errorf("rows %+v", rows)
	}
}

const demoAccess = `
[credential.demo]
kind   = "bearer"
origin = "https://api.example"

[credential.more]
kind   = "bearer"
origin = "https://api.example"

[capability."http:demo.read"]
credential = "demo"
methods    = ["GET"]
paths      = ["/**"]
confirm    = "each"
`

// TestV05_NoSaveOverAnotherWriter: the broker saves nothing over a file that
// somebody else wrote, however like it looks, and leaves conflict copies alone.
func TestV05_NoSaveOverAnotherWriter(t *testing.T) {
	b := New(t)
	b.Serve()
	b.Unlock()
	b.Apply(demoAccess)
	path := filepath.Join(b.Home, vault.FileName)
	info, err := os.Stat(path)
	must(t, err)
	theirs, err := os.ReadFile(path)
	must(t, err)
	theirs[len(theirs)/2] ^= 1 // the same size, and made to have the same time
	must(t, os.WriteFile(path, theirs, 0o600))
	must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	conflict := filepath.Join(b.Home, "vault (conflict).yett")
	must(t, os.WriteFile(conflict, theirs, 0o600))
	wantExit(t, b.RunWith(canary, Passphrase, "secret", "set", "demo"), 1, "Another program changed the vault's file", "yett vault restore")
	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase")
	wantExit(t, r, 1, "Another program changed the vault's file")
	for _, p := range []string{path, conflict} {
		if now, err := os.ReadFile(p); err != nil || !bytes.Equal(now, theirs) {
			t.Errorf("%s was overwritten: %v", p, err)
		}
	}
	wantExit(t, b.Run("secret", "list"), 0, "demo") // and still answers with what it has
}
