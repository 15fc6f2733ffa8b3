package yetttest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// bare is a home in which there is nothing. A broker that yett up starts there
// ends with the test.
func bare(t *testing.T) *Broker {
	t.Helper()
	b := New(t)
	must(t, os.RemoveAll(b.Home))
	b.endAfter()
	return b
}

// endAfter ends the broker that yett up started.
func (b *Broker) endAfter() {
	b.T.Cleanup(func() {
		log, _ := os.ReadFile(filepath.Join(b.Home, "broker.log"))
		if strings.Contains(string(log), "DATA RACE") || b.T.Failed() {
			b.T.Errorf("log of the broker in the background:\n%s", log)
		}
		if pid := b.background(); pid > 0 && !dead(pid) {
			syscall.Kill(pid, syscall.SIGKILL)
			awaitGone(b.T, pid)
		}
	})
}

// background is the process of the broker that holds the home, 0 if there was
// none.
func (b *Broker) background() int {
	var holder struct{ PID int }
	text, err := os.ReadFile(filepath.Join(b.Home, "run", "broker.state"))
	if err != nil || json.Unmarshal(text, &holder) != nil {
		return 0
	}
	return holder.PID
}

func (b *Broker) state() string {
	b.T.Helper()
	var st wire.Status
	r := b.RunPlain("status", "--json")
	json.Unmarshal([]byte(r.Stdout), &st)
	return st.State
}

// TestF1_NewcomerInTwoCommands: from nothing to an agent's approved action: two
// commands, answers on the terminal, no file edited; each command prints what
// comes next.
func TestF1_NewcomerInTwoCommands(t *testing.T) {
	up := StartUpstream(t, canary)
	b := bare(t)

	p := b.typing(t, "up")
	p.shows("A passphrase needs at least 8 characters.")
	p.types("New Yett passphrase: ", "short")
	p.shows("Once more.")
	p.types("New Yett passphrase: ", Passphrase)
	p.types("The same again: ", Passphrase)
	if code := printedCode.FindString(p.shows("The vault is made")); code == "" {
		t.Error("no recovery code was shown")
	}
	p.shows("Yett is up.")
	p.shows("next: yett add --home " + b.Home + " PRESET")
	p.shows(Bin("yett-mcp"))
	p.exits(0)

	p = b.typing(t, "add", "http")
	p.types("A short name for it: ", "demo")
	p.types("Its place", up.URL)
	p.types("Paths that agents may ask for", "/v1/hello /v1/items/*")
	p.types("Methods", "GET post")
	p.types("Value of demo (token): ", canary)
	p.shows(`+ capability."http:demo.read"`)
	p.shows("then tried once: GET /v1/hello")
	p.types("Yett passphrase: ", Passphrase)
	p.shows("http:demo.read")
	p.shows("Tried: The API answered 200.")
	p.shows("next: let an agent ask for it, then: yett pending")
	p.shows(Bin("yett-mcp"))
	p.exits(0)
	if strings.Contains(p.all(), canary) || strings.Contains(p.all(), Passphrase) {
		t.Error("what was typed hidden stands on the screen")
	}

	h := b.startShim().ready()
	asked := h.call("request_access", `{"capabilities":["http:demo.read"],"purpose":"a first try","wait_ms":0}`)
	asked.wants(t, "pending: ")
	p = b.typing(t, "approve", asked.session(t).Pending.ApprovalID)
	p.types("Yett passphrase: ", Passphrase)
	p.types("Type yes:", "yes")
	p.shows("Approved.")
	p.exits(0)
	op := h.call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/items/7","wait_ms":20000}`).operation(t)
	if op.State != "completed" || !strings.Contains(string(op.Result), `"status":200`) {
		t.Fatalf("%+v %s", op, op.Result)
	}
	if seen := up.Seen(); len(seen) != 2 || seen[0] != "GET /v1/hello" || seen[1] != "GET /v1/items/7" {
		t.Errorf("the API saw %v", seen)
	}
	for _, auth := range up.Authorizations() {
		if auth != "Bearer "+canary {
			t.Errorf("the API got %q", auth)
		}
	}
	if r := b.Must("access", "show"); !strings.Contains(r.Stdout, `methods = ["POST"]`) || !strings.Contains(r.Stdout, `confirm = "each"`) {
		t.Errorf("what changes something is not asked for each time:\n%s", r.Stdout)
	}
	wantExit(t, b.RunPlain("stop"), 0)
}

// TestM12_UpThroughAPipe: whoever reads the output of yett up to its end is not
// held up by the broker that it started, on standard output, standard error or
// any other descriptor.
func TestM12_UpThroughAPipe(t *testing.T) {
	b := bare(t)
	secret, w, err := os.Pipe()
	must(t, err)
	defer secret.Close()
	fmt.Fprintln(w, Passphrase)
	w.Close()
	c := exec.Command(Bin("yett"), "up", "--home", b.Home, "--passphrase-fd", "3")
	c.Env, c.Dir = []string{}, t.TempDir()
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.ExtraFiles = []*os.File{secret}
	ends := make(chan error, 4)
	for _, give := range []func(*os.File){
		func(f *os.File) { c.Stdout = f }, func(f *os.File) { c.Stderr = f },
		func(f *os.File) { c.ExtraFiles = append(c.ExtraFiles, f) }, func(f *os.File) { c.ExtraFiles = append(c.ExtraFiles, f) },
	} {
		r, w, err := os.Pipe()
		must(t, err)
		defer r.Close()
		defer w.Close()
		give(w)
		go func() { _, err := io.Copy(io.Discard, r); ends <- err }()
	}
	must(t, c.Start())
	for _, f := range append([]*os.File{c.Stdout.(*os.File), c.Stderr.(*os.File)}, c.ExtraFiles[1:]...) {
		f.Close()
	}
	must(t, c.Wait())
	limit := time.After(Patience / 3)
	for range cap(ends) {
		select {
		case err := <-ends:
			must(t, err)
		case <-limit:
			t.Fatal("the broker holds an end of a pipe that was not meant for it")
		}
	}
	if b.state() != "ready" {
		t.Fatal("the broker has ended too, so this shows nothing")
	}
	pid := b.background()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	_, after, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(after) // state, ppid, pgrp, session, tty
	if f[2] != fmt.Sprint(pid) || f[3] != fmt.Sprint(pid) || f[4] != "0" {
		t.Errorf("process %d is in group %s, session %s, on terminal %s", pid, f[2], f[3], f[4])
	}
	wantExit(t, b.RunPlain("stop"), 0)
	awaitGone(t, pid)
}

// TestUpAgain: it takes the steps that are missing and no other, and asks for
// nothing that it does not need.
func TestUpAgain(t *testing.T) {
	b := bare(t)
	r, code := b.runSecrets(true, pass(Passphrase), "up", "--json")
	wantExit(t, r, 0)
	var done struct {
		State, Vault, Broker, Home, Endpoint string
		Unlocked                             bool
		Recovery                             *bool `json:"recovery_shown"`
		Client                               struct {
			Command string
			Args    []string
		}
	}
	r.JSON(t, &done)
	if done.State != "ready" || done.Vault != "made" || done.Broker != "started" || !done.Unlocked || done.Recovery == nil || !*done.Recovery ||
		done.Client.Command != Bin("yett-mcp") || len(done.Client.Args) != 2 || len(code) < 40 {
		t.Fatalf("%+v, code of %d characters", done, len(code))
	}
	first := b.background()
	wantExit(t, b.RunPlain("up"), 0, "Yett is up already.", "next: yett add --home "+b.Home+" PRESET")
	if b.background() != first {
		t.Error("another broker was started")
	}
	wantExit(t, b.RunPlain("lock"), 0)
	wantRefusal(t, b.RunPlain("up", "--json"), 3, wire.CodeProofRequired)
	wantRefusal(t, b.RunWith("", another, "up", "--json"), 3, wire.CodeProofInvalid)
	if b.state() != "locked" {
		t.Error("it is not locked any more")
	}
	wantExit(t, b.Run("up"), 0, "Unlocked.", "Yett is up.")
	wantExit(t, b.RunPlain("stop"), 0)
	awaitGone(t, first)
	r = b.Run("up", "--json")
	wantExit(t, r, 0)
	done.Recovery = nil
	r.JSON(t, &done)
	if done.Vault != "there" || done.Broker != "started" || done.Recovery != nil || b.background() == first {
		t.Errorf("%+v", done)
	}
	if !b.opens(code) {
		t.Error("the recovery code does not open the vault")
	}
}

// TestUpAsksNobody: without a terminal and a descriptor it exits, and makes and
// starts nothing.
func TestUpAsksNobody(t *testing.T) {
	b := bare(t)
	wantRefusal(t, b.RunPlain("up", "--json"), 3, wire.CodeProofRequired)
	if _, err := os.Lstat(b.Home); err == nil {
		t.Error("something was made")
	}
	withVault := New(t)
	wantRefusal(t, withVault.RunPlain("up", "--json"), 3, wire.CodeProofRequired)
	if withVault.background() != 0 || withVault.state() != "unavailable" {
		t.Error("a broker was started for nobody who could unlock it")
	}
	wantExit(t, b.RunWith("", "short", "up"), 1, "next:")
	if vault.Exists(b.Home) || b.background() != 0 {
		t.Error("a vault was made with a passphrase that is refused")
	}
}

// TestUpSaysWhyNot: a broker that cannot start says why in one sentence, with
// its exit code, at once.
func TestUpSaysWhyNot(t *testing.T) {
	b := New(t)
	b.endAfter()
	file := filepath.Join(b.Home, vault.FileName)
	whole, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, whole[:len(whole)/2], 0o600))
	said := wantRefusal(t, b.Run("up", "--json"), 4, wire.CodeUnavailable)
	if !strings.Contains(said, "cannot be used") {
		t.Errorf("it says %q", said)
	}
	must(t, os.WriteFile(file, whole, 0o600))
	wantExit(t, b.Run("up"), 0)
	must(t, os.Truncate(filepath.Join(b.Home, "broker.log"), 2<<20))
	wantExit(t, b.RunPlain("stop"), 0)
	wantExit(t, b.Run("up"), 0)
	if st, err := os.Stat(filepath.Join(b.Home, "broker.log")); err != nil || st.Size() > 1<<20 {
		t.Errorf("the log grows without end: %v", err)
	}
}

// TestUpTwiceAtOnce: two that start at the same moment end with one broker.
func TestUpTwiceAtOnce(t *testing.T) {
	b := New(t)
	b.endAfter()
	results := make(chan Result, 3)
	for range cap(results) {
		go func() { results <- b.Run("up") }()
	}
	for range cap(results) {
		if r := <-results; r.Code != 0 {
			t.Errorf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
	}
	if b.state() != "ready" {
		t.Error("it is not up")
	}
}
