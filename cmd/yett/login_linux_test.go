package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/loginkeys"
	"github.com/yett-broker/yett/internal/vault"
)

// fakeMac is a login keychain in memory and a sensor that answers as told.
type fakeMac struct {
	mu    sync.Mutex
	items map[string][]byte
	no    error
	asked []string
}

func (f *fakeMac) Add(service, account, label string, value []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.items[service+"\n"+account] != nil {
		return loginkeys.ErrItemThere
	}
	f.items[service+"\n"+account] = bytes.Clone(value)
	return nil
}

func (f *fakeMac) Read(service, account string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.items[service+"\n"+account]; v != nil {
		return bytes.Clone(v), nil
	}
	return nil, loginkeys.ErrNoItem
}

func (f *fakeMac) Delete(service, account string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.items, service+"\n"+account)
	return nil
}

func (f *fakeMac) Ask(_ context.Context, reason string) error {
	f.asked = append(f.asked, reason)
	return f.no
}

func (f *fakeMac) login() (loginkeys.Store, error) { return loginkeys.Store{Keychain: f, Gate: f}, nil }

const macPhrase = "correct horse battery"

// macHome is a running broker with its own home, and commands of it that run in
// this process: those take their keychain from mac, and the real one if it is nil.
type macHome struct {
	t    *testing.T
	home string
	mac  *fakeMac
	keys map[string]*vault.Keys // derived once, since that is slow by design
}

func startMacHome(t *testing.T) *macHome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(self), "yett") // beside this program, as it is installed
	if err := os.Link(self, program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(program) })
	h := &macHome{t: t, home: filepath.Join(t.TempDir(), "h"), mac: &fakeMac{items: map[string][]byte{}}, keys: map[string]*vault.Keys{}}
	if _, err := vault.Create(h.home, []byte(macPhrase)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "serve", "--home", h.home)
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(os.Interrupt)
		c.Wait()
		if t.Failed() {
			t.Logf("the broker: %s", log.String())
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, code := h.run("status")
		if code == exitDone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the broker does not answer: %s", out)
		}
	}
	return h
}

// run is one command, as run does it, with the passphrase given. The terminal is a
// file.
func (h *macHome) run(args ...string) (string, int) {
	h.t.Helper()
	out, err := os.CreateTemp(h.t.TempDir(), "")
	if err != nil {
		h.t.Fatal(err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		h.t.Fatal(err)
	}
	defer null.Close()
	a := &app{stdin: null, stdout: &output{File: out}, stderr: out, passFD: -1, passphrase: []byte(macPhrase), keys: h.keys, login: openLogin}
	if h.mac != nil {
		a.login = h.mac.login
	}
	root := newRoot(a)
	args = append(args, "--home", h.home)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(out)
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	command, err := root.ExecuteContextC(ctx)
	code := a.finish(command, args, err)
	said, err := os.ReadFile(out.Name())
	if err != nil {
		h.t.Fatal(err)
	}
	return string(said), code
}

func (h *macHome) must(args ...string) string {
	h.t.Helper()
	out, code := h.run(args...)
	if code != exitDone {
		h.t.Fatalf("yett %v: %d\n%s", args, code, out)
	}
	return out
}

// refuses wants a command to end with a code and to say something.
func (h *macHome) refuses(code int, say string, args ...string) {
	h.t.Helper()
	out, got := h.run(args...)
	if got != code || !strings.Contains(out, say) {
		h.t.Errorf("yett %v: %d, want %d and %q\n%s", args, got, code, say, out)
	}
}

// card files one as an agent would, and returns its id.
func (h *macHome) card() string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	conn, err := client.DialHome(ctx, h.home, client.Options{Program: "agent"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	s, err := conn.OpenSession(ctx, []string{"http:demo.read"}, "")
	if err != nil || s.Opened().Pending == nil {
		h.t.Fatalf("%+v, %v", s, err)
	}
	return s.Opened().Pending.ApprovalID
}

const macAccess = `
[credential.demo]
kind = "bearer"
origin = "https://api.example.com"

[capability."http:demo.read"]
credential = "demo"
methods = ["GET"]
paths = ["/v1/**"]
`

// TestTouchIDFlow: a key is made with the passphrase and the finger, approves a
// card by the finger, is checked again from the rows and exported as a receipt,
// and is taken back. A no approves nothing, and the card still waits.
func TestTouchIDFlow(t *testing.T) {
	h := startMacHome(t)
	h.must("unlock")
	file := filepath.Join(t.TempDir(), "access.toml")
	if err := os.WriteFile(file, []byte(macAccess), 0o600); err != nil {
		t.Fatal(err)
	}
	h.must("apply", file)
	id := h.card()
	h.notOnThisSystem()
	h.refuses(exitRefused, "has no Touch ID key of Yett", "approve", id, "--touch-id")

	h.mac.no = errors.New("Touch ID: the prompt was cancelled (LAError -2)")
	h.refuses(exitRefused, "was cancelled", "touch-id", "add", "mac")
	if len(h.mac.items) != 0 {
		t.Errorf("a key without a yes stays: %q", h.mac.items)
	}
	h.mac.no = nil
	added := h.must("touch-id", "add", "mac")
	h.refuses(exitFailed, "already", "touch-id", "add", "another")
	if listed := h.must("passkey", "list"); !strings.Contains(listed, "mac") || !strings.Contains(listed, "Touch ID") {
		t.Errorf("listed %q", listed)
	}

	h.mac.no = errors.New("Touch ID: the prompt was cancelled (LAError -2)")
	h.refuses(exitRefused, "was cancelled", "approve", id, "--touch-id")
	h.mac.no, h.mac.asked = nil, nil
	if waits := h.must("pending", "--touch-id"); !strings.Contains(waits, id) {
		t.Errorf("waits: %q", waits)
	}
	h.must("approve", id, "--touch-id", "--for", "10m")
	words := strings.ToUpper(approval.Tag(id))
	if n := len(h.mac.asked); n != 3 || !strings.Contains(h.mac.asked[0], "show the cards") || !strings.HasPrefix(h.mac.asked[2], "approve the card "+words+" until ") {
		t.Errorf("the prompts were %q", h.mac.asked)
	}
	if said := h.must("audit", "verify", "--rows"); !strings.Contains(said, "3 acts by signature checked again") {
		t.Errorf("verified: %s", said)
	}
	row := ""
	for line := range strings.Lines(h.must("activity")) {
		if strings.Contains(line, "by Touch ID key mac") {
			row = strings.Fields(line)[0]
		}
	}
	receipt := filepath.Join(t.TempDir(), "receipt.json")
	h.must("receipt", row, "--out", receipt)
	fingerprint := strings.TrimSuffix(strings.TrimSpace(added[strings.LastIndex(added, " "):]), ".")
	if said := h.must("receipt", "verify", receipt, "--passkey", fingerprint); !strings.Contains(said, "ok: Touch ID key "+fingerprint) {
		t.Errorf("the receipt: %s", said)
	}
	h.openssl(receipt)

	h.must("touch-id", "remove", "mac")
	if len(h.mac.items) != 0 {
		t.Errorf("the key stays in the keychain: %q", h.mac.items)
	}
	h.refuses(exitFailed, "no such Touch ID key", "touch-id", "remove", "mac")
	h.must("audit", "verify", "--rows")
}

// openssl checks a receipt of Touch ID with nothing of Yett.
func (h *macHome) openssl(receipt string) {
	h.t.Helper()
	text, err := os.ReadFile(receipt)
	if err != nil {
		h.t.Fatal(err)
	}
	r, err := approval.ParseReceipt(text)
	if err != nil {
		h.t.Fatal(err)
	}
	dir := h.t.TempDir()
	sum := sha256.Sum256(fmt.Appendf(nil, "yett-decision-v1\n%x\n%s\n%s\n%s", sha256.Sum256([]byte("yett-card-v1\n"+r.Card)), r.Choice, r.Until.Format(time.RFC3339Nano), r.Nonce))
	for name, content := range map[string][]byte{"key.pem": []byte(r.KeyPEM), "challenge": sum[:], "signature": r.Signature, "other": make([]byte, 32)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	for file, good := range map[string]bool{"challenge": true, "other": false} {
		c := exec.Command("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-in", file, "-sigfile", "signature")
		c.Dir = dir
		if out, err := c.CombinedOutput(); (err == nil) != good {
			h.t.Errorf("openssl says of the %s: %v %s", file, err, out)
		}
	}
}

// TestKeychainFlow: a share is added with the passphrase, unlocks without it,
// proves nothing, and is taken back; a share that is gone or of another slot does
// not unlock.
func TestKeychainFlow(t *testing.T) {
	h := startMacHome(t)
	h.refuses(exitLocked, "locked", "vault", "keychain", "add")
	h.refuses(exitFailed, "no keychain slot", "unlock", "--keychain")
	h.must("unlock")
	h.refuses(exitFailed, "no keychain slot", "vault", "keychain", "remove")
	h.must("vault", "keychain", "add")
	first := maps.Clone(h.mac.items)
	h.must("lock")
	h.must("unlock", "--keychain")
	if said := h.must("activity"); !strings.Contains(said, "keychain") {
		t.Errorf("the rows do not tell: %s", said)
	}

	h.must("vault", "keychain", "add")
	if len(h.mac.items) != 1 || fmt.Sprint(h.mac.items) == fmt.Sprint(first) {
		t.Errorf("after another share the items are %q", h.mac.items)
	}
	h.must("lock")
	second := h.mac.items
	h.mac.items = map[string][]byte{}
	for name := range second {
		for _, share := range first {
			h.mac.items[name] = share // the share of before, under the name of the present one
		}
	}
	h.refuses(exitRefused, "does not open this vault", "unlock", "--keychain")
	h.mac.items = first
	h.refuses(exitRefused, "has no share", "unlock", "--keychain")
	h.mac.items = map[string][]byte{}
	for name := range second {
		h.mac.items[name] = []byte("not of Yett")
	}
	h.refuses(exitRefused, "not one of Yett's", "unlock", "--keychain")
	h.mac.items = second
	h.must("unlock", "--keychain")
	h.must("vault", "keychain", "remove")
	if len(h.mac.items) != 0 {
		t.Errorf("left %q", h.mac.items)
	}
	h.must("lock")
	h.mac.items = second
	h.refuses(exitFailed, "no keychain slot", "unlock", "--keychain")
	h.must("unlock")
}

// notOnThisSystem: without a Mac each way to the finger and to the keychain
// refuses with a sentence, and nothing is changed.
func (h *macHome) notOnThisSystem() {
	mac := h.mac
	h.mac = nil
	for _, args := range [][]string{{"touch-id", "add", "mac"}, {"approve", "a_1", "--touch-id"}, {"approve", "a_1", "--touch-id", "--digest", "d"}, {"pending", "a_1", "--touch-id"}} {
		h.refuses(exitRefused, "Touch ID is a macOS proof", args...)
	}
	for _, args := range [][]string{{"vault", "keychain", "add"}, {"unlock", "--keychain"}} {
		h.refuses(exitRefused, "The login keychain is of macOS", args...)
	}
	h.mac = mac
}
