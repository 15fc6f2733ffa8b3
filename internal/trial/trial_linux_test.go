package trial

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func testTrial(out *bytes.Buffer) *trial {
	return newTrial(Options{Story: out, Yes: true, Shim: "/nowhere/yett-mcp"})
}

func (t *trial) result() (r Result) {
	for _, c := range t.claims {
		r.Claims = append(r.Claims, *c)
	}
	return r
}

// A claim that nobody checked, and one that failed once, is not proven.
func TestTryClaimsMustAllHold(t *testing.T) {
	tr := testTrial(&bytes.Buffer{})
	if tr.result().Proven() {
		t.Error("proven before anything was checked")
	}
	for _, c := range tr.claims {
		if tr.result().Proven() {
			t.Errorf("proven without %s", c.Name)
		}
		tr.check(c.Name, true, "seen")
	}
	if !tr.result().Proven() {
		t.Error("not proven although every claim holds")
	}
	tr.check(claimSecrets, false, "found one")
	tr.check(claimSecrets, true, "found none later")
	if tr.result().Proven() {
		t.Error("a claim that failed was taken back")
	}
}

func TestTryListSaysWhatFailed(t *testing.T) {
	var out bytes.Buffer
	tr := testTrial(&out)
	tr.check(claimHTTP, true, "the API answered")
	tr.check(claimSSH, false, "exit status 1")
	tr.result().List(&out, time.Second)
	for _, want := range []string{"✓ The agent used an API", "the API answered", "✗ The agent ran a command", "exit status 1", "not reached", "1 of 13"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

// The search finds each planted secret in each kind of place.
func TestTrySearchFindsALeakAnywhere(t *testing.T) {
	tr := testTrial(&bytes.Buffer{})
	s := tr.search
	want := 0
	wantLeak := func(where string) {
		t.Helper()
		want++
		if len(s.leaks) != want || !strings.Contains(s.leaks[want-1], where) {
			t.Errorf("leaks %q, want %d, the last one in %s", s.leaks, want, where)
		}
	}

	s.look("a reply", append([]byte("Bearer "), tr.token...))
	wantLeak("a reply")
	s.look("a reply", []byte("nothing"))

	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "home", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "home", "deep", "x.db-wal"), append([]byte("\x00\xff"), tr.passphrase...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.lookAtFiles(dir); err != nil {
		t.Fatal(err)
	}
	wantLeak("home/deep/x.db-wal")

	var printed record
	printed.Write([]byte("debug: "))
	printed.Write(tr.token)
	tr.keep("a program", &printed)
	wantLeak("the output of a program")

	tr.prepare(t.Context(), "/bin/true", string(tr.passphrase))
	wantLeak("the arguments of /bin/true")
}

func TestTrySearchLooksAtRunningProcesses(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Fatalf("the demonstration needs /proc: %v", err)
	}
	for place, start := range map[string]struct{ env, arg string }{"environ": {"SECRET=%s", ""}, "cmdline": {"", "%s"}} {
		tr := testTrial(&bytes.Buffer{})
		fill := func(s string) string { return strings.ReplaceAll(s, "%s", string(tr.token)) }
		tr.self, tr.environment = "/bin/sh", []string{fill(start.env)}
		p, err := tr.start("a process", true, nil, "-c", "echo ready; read x", fill(start.arg))
		if err != nil {
			t.Fatal(err)
		}
		defer tr.end(p)
		if err := p.waitLine(t.Context(), "ready"); err != nil {
			t.Fatal(err)
		}
		tr.search.leaks = nil // the arguments were seen before they were used
		tr.search.lookAtProcesses()
		if len(tr.search.leaks) != 1 || !strings.Contains(tr.search.leaks[0], "the "+place+" of process") {
			t.Errorf("%s: leaks %q", place, tr.search.leaks)
		}
	}
}
