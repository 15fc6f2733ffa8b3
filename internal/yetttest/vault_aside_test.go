package yetttest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/vault"
)

// TestAChangedPassphraseNamesWhatTheOldOneOpens: a vault that a restore put
// aside is not reached by a change, and the person is told.
func TestAChangedPassphraseNamesWhatTheOldOneOpens(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	aside := filepath.Join(b.Home, vault.FileName+".replaced-20260101T000000.000Z")
	image, err := os.ReadFile(filepath.Join(b.Home, vault.FileName))
	must(t, err)
	must(t, os.WriteFile(aside, image, 0o600))
	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase", "--json")
	wantExit(t, r, 0)
	var said struct{ Warning string }
	r.JSON(t, &said)
	if !strings.Contains(said.Warning, aside) {
		t.Errorf("the vault put aside is not named: %s", r.Stdout)
	}
}

// TestApplyReadsARegularFile: a FIFO that nobody writes to is refused at once.
func TestApplyReadsARegularFile(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	fifo := filepath.Join(t.TempDir(), "access.toml")
	must(t, syscall.Mkfifo(fifo, 0o600))
	r := b.Run("apply", fifo)
	if r.Code != 1 || !strings.Contains(r.Stderr, "is not a regular file") {
		t.Errorf("exit %d %s", r.Code, r.Stderr)
	}
}

// TestInitRefusesAHomeThatNoBrokerWouldUse: the reason comes before a vault is
// made, not after.
func TestInitRefusesAHomeThatNoBrokerWouldUse(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	open := filepath.Join(filepath.Dir(b.Home), "o") // short: a socket has its place below
	must(t, os.Mkdir(open, 0o700))
	must(t, os.Chmod(open, 0o777))
	other := &Broker{T: t, Env: b.Env}
	other.Home = filepath.Join(open, "h")
	r := other.Run("init")
	if r.Code != 1 || !strings.Contains(r.Stderr, "others can write to it") {
		t.Errorf("exit %d %s", r.Code, r.Stderr)
	}
	if _, err := os.Lstat(other.Home); err == nil {
		t.Error("something was made")
	}
}
