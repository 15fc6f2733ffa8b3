package yetttest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// refusal is what a command prints when it refuses.
type refusal struct {
	Error wire.Reason `json:"error"`
}

// wantRefusal runs a command with --json and wants an exit code, an error code
// and a next step; it returns the message.
func wantRefusal(t *testing.T, r Result, exit int, code string) string {
	t.Helper()
	var e refusal
	if err := json.Unmarshal([]byte(r.Stderr), &e); err != nil {
		t.Fatalf("exit %d, stderr is not an error object: %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	if r.Code != exit || e.Error.Code != code || e.Error.Message == "" || e.Error.NextStep == "" {
		t.Fatalf("exit %d, %+v; want exit %d, %s, with message and next step", r.Code, e.Error, exit, code)
	}
	return e.Error.Message
}

func TestBadInputPassphrase(t *testing.T) {
	b := New(t)
	b.Serve()
	wantRefusal(t, b.RunWith("", "not the passphrase", "unlock", "--json"), 3, wire.CodeProofInvalid)
	wantRefusal(t, b.RunPlain("unlock", "--json"), 3, wire.CodeProofRequired)
	b.Must("unlock")
	wantRefusal(t, b.RunWith("", "not the passphrase", "activity", "--json"), 3, wire.CodeProofInvalid)
	rows := b.Activity()
	if rows[0].Kind != "unlock.refused" {
		t.Fatalf("the wrong passphrase left no row: %+v", rows[0])
	}
}

func TestBadInputInit(t *testing.T) {
	b := New(t)
	before, err := os.ReadFile(filepath.Join(b.Home, "vault.yett"))
	if err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, b.Run("init", "--json"), 1, wire.CodeBadRequest)
	after, _ := os.ReadFile(filepath.Join(b.Home, "vault.yett"))
	if !bytes.Equal(before, after) {
		t.Fatal("a second init changed the vault")
	}
	other := &Broker{T: t, Home: filepath.Join(t.TempDir(), "h"), log: &buffer{}}
	wantRefusal(t, other.RunWith("", "short", "init", "--json"), 1, wire.CodeBadRequest)
	wantRefusal(t, other.RunPlain("serve", "--json"), 1, wire.CodeBadRequest)
}

func TestBadInputDamagedVault(t *testing.T) {
	b := New(t)
	path := filepath.Join(b.Home, "vault.yett")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range [][]byte{good[:len(good)/2], append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), {}} {
		if err := os.WriteFile(path, damage, 0o600); err != nil {
			t.Fatal(err)
		}
		if msg := wantRefusal(t, b.RunPlain("serve", "--json"), 1, wire.CodeInternal); !strings.Contains(msg, "damaged") {
			t.Errorf("the message does not say it: %s", msg)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, damage) {
			t.Error("the damaged file was changed")
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Serve()
	b.Must("unlock")
}

func TestBadInputAccessFile(t *testing.T) {
	const head = "[credential.demo]\nkind = \"bearer\"\norigin = \"https://api.example.com\"\n"
	capability := func(more string) string {
		return head + "[capability.\"http:demo.read\"]\ncredential = \"demo\"\nmethods = [\"GET\"]\npaths = [\"/v1/*\"]\n" + more
	}
	b := Start(t, capability(""))
	for name, c := range map[string]struct{ file, says string }{
		"unknown key":         {capability("surprise = 1\n"), "line 8"},
		"duplicate key":       {capability("methods = [\"GET\"]\n"), "line 8"},
		"unknown credential":  {strings.Replace(capability(""), "credential = \"demo\"", "credential = \"nobody\"", 1), "line 5"},
		"wildcard everything": {strings.Replace(capability(""), "/v1/*", "/**", 1), "line 7"},
		"not TOML":            {"[credential", "line 1"},
	} {
		f := filepath.Join(t.TempDir(), "access.toml")
		if err := os.WriteFile(f, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if msg := wantRefusal(t, b.Run("apply", f, "--json"), 1, wire.CodeBadRequest); !strings.Contains(msg, c.says) {
			t.Errorf("%s: the message names no line %q: %s", name, c.says, msg)
		}
	}
	wantRefusal(t, b.Run("apply", filepath.Join(t.TempDir(), "absent.toml"), "--json"), 1, wire.CodeBadRequest)
	if out := b.Must("access", "list", "--json").Stdout; !strings.Contains(out, "http:demo.read") {
		t.Errorf("a refused file changed what is applied: %s", out)
	}
}

func TestBadInputSecret(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access())
	wantRefusal(t, b.RunWith("short", Passphrase, "secret", "set", "demo", "--json"), 1, wire.CodeBadRequest)
	wantRefusal(t, b.RunWith("", Passphrase, "secret", "set", "demo", "--json"), 1, wire.CodeBadRequest)
	wantRefusal(t, b.RunWith(canary, Passphrase, "secret", "set", "undeclared", "--json"), 1, wire.CodeBadRequest)
	wantRefusal(t, b.RunWith(canary, "", "secret", "set", "demo", "--json"), 3, wire.CodeProofRequired)
	wantRefusal(t, b.RunWith(canary, Passphrase, "secret", "rotate", "demo", "--json"), 1, wire.CodeBadRequest)
	c := b.Granted("http:demo.read")
	op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
	if !strings.Contains(string(op.Result), "no value yet") || len(up.Seen()) != 0 {
		t.Fatalf("an action without a value: %+v %s", op, op.Result)
	}
	b.SetSecret("demo", canary+"\n")
	wantRefusal(t, b.RunWith("another-value", Passphrase, "secret", "set", "demo", "--json"), 1, wire.CodeBadRequest)
	if op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); !strings.Contains(string(op.Result), `"status":200`) {
		t.Fatalf("a refused set changed the value: %s", op.Result)
	}
}

func TestBadInputSocketPathTooLong(t *testing.T) {
	b := &Broker{T: t, Home: filepath.Join(t.TempDir(), strings.Repeat("long", 40)), log: &buffer{}}
	for _, command := range []string{"init", "serve", "status"} {
		if msg := wantRefusal(t, b.Run(command, "--json"), 1, wire.CodeBadRequest); !strings.Contains(msg, "107") {
			t.Errorf("%s: the message does not name the limit: %s", command, msg)
		}
	}
	if _, err := os.Stat(b.Home); err == nil {
		t.Error("something was made there")
	}
}

func TestBadInputBrokerDownAndLocked(t *testing.T) {
	up := StartUpstream(t, canary)
	b := New(t)
	wantRefusal(t, b.Run("pending", "--json"), 4, wire.CodeUnavailable)
	wantRefusal(t, b.Run("unlock", "--json"), 4, wire.CodeUnavailable)
	b.Serve()
	f := filepath.Join(t.TempDir(), "a.toml")
	if err := os.WriteFile(f, []byte(up.Access()), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, b.Run("apply", f, "--json"), 5, wire.CodeLocked)
	wantRefusal(t, b.RunWith(canary, Passphrase, "secret", "set", "demo", "--json"), 5, wire.CodeLocked)
	wantRefusal(t, b.Run("approve", "a_X", "--digest", "00", "--json"), 5, wire.CodeLocked)
	for _, list := range [][]string{{"pending"}, {"sessions"}, {"secret", "list"}, {"access", "list"}} {
		if r := b.Run(append(list, "--json")...); r.Code != 0 || strings.TrimSpace(r.Stdout) != "[]" {
			t.Errorf("%v while locked: exit %d %s%s", list, r.Code, r.Stdout, r.Stderr)
		}
	}
	c := b.Open()
	if r := c.Call(wire.MethodSessionOpen, map[string]any{"nonce": c.Hello.Nonce, "capabilities": []string{}}); r.Code() != wire.CodeLocked {
		t.Errorf("session.open while locked: %q", r.Code())
	}
}

func TestBadInputTwoBrokers(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read")
	msg := wantRefusal(t, b.RunPlain("serve", "--json"), 1, wire.CodeBadRequest)
	if !strings.Contains(msg, "running already") {
		t.Errorf("the message does not say who is there: %s", msg)
	}
	if op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); op.State != "completed" {
		t.Errorf("the first broker was disturbed: %+v", op)
	}
}

func TestBadInputLedgerNotWritable(t *testing.T) {
	b := New(t)
	db := filepath.Join(b.Home, "ledger.db")
	if err := os.WriteFile(db, []byte("this is no database, and it is somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, b.RunPlain("serve", "--json"), 1, wire.CodeInternal)
	if got, _ := os.ReadFile(db); string(got) != "this is no database, and it is somebody's" {
		t.Fatal("the file was changed")
	}
	os.Remove(db)
	b.Serve()
	b.Must("unlock")
	b.Stop()
	if err := os.Chmod(db, 0o400); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, b.RunPlain("serve", "--json"), 1, wire.CodeInternal)
	if err := os.Chmod(db, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Serve()
	b.Must("unlock")
}

// TestA01_NoRoomForTheIntentNoAction: the limit on the size of files is the
// kernel's own and holds for every account.
func TestA01_NoRoomForTheIntentNoAction(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.write")
	limit := func(size string) {
		if out, err := exec.Command("prlimit", "--fsize="+size+":", "--pid", strconv.Itoa(b.PID())).CombinedOutput(); err != nil {
			t.Fatalf("prlimit: %v %s", err, out)
		}
	}
	limit("4096")
	r := c.Act("http:demo.write", map[string]any{"method": "POST", "path": "/v1/x"})
	if r.Code() != wire.CodeLedgerUnavailable || len(up.Seen()) != 0 {
		t.Fatalf("%q, %v arrived", r.Code(), up.Seen())
	}
	limit("unlimited")
	for deadline := time.Now().Add(Patience); ; {
		r := c.Act("http:demo.write", map[string]any{"method": "POST", "path": "/v1/x"})
		if r.Code() == "" {
			break
		}
		if r.Code() != wire.CodeLedgerUnavailable || time.Now().After(deadline) {
			t.Fatalf("with room again: %q", r.Code())
		}
	}
	if len(up.Seen()) != 1 {
		t.Fatalf("%v arrived", up.Seen())
	}
}

func TestUsage(t *testing.T) {
	b := New(t)
	for _, args := range [][]string{{"nonsense"}, {"approve"}, {"status", "extra"}, {"status", "--nonsense"}, {"approve", "a", "--for", "9h"}, {"approve", "a", "--once", "--for", "1h"}} {
		if r := b.Run(append(args, "--json")...); r.Code != 2 {
			t.Errorf("%v: exit %d\n%s", args, r.Code, r.Stderr)
		}
	}
}
