package system

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/yett-broker/yett/internal/macos"
)

// standin compiles the stand-in for macOS's libraries.
func standin(t *testing.T, flags ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("on macOS the libraries themselves are there: yett selftest")
	}
	path := filepath.Join(t.TempDir(), "standin.so")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Werror", "-fno-builtin", "-pthread", "-o", path, "testdata/standin.c"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

type world struct {
	*Kernel
	*Code
	peer     func(pid uint32)
	live     func() int32
	required func() string
}

func openWorld(t *testing.T) *world {
	t.Helper()
	path := standin(t)
	w := &world{}
	var err error
	if w.Kernel, err = OpenKernel(path); err != nil {
		t.Fatal(err)
	}
	if w.Code, err = OpenCode(path, path); err != nil {
		t.Fatal(err)
	}
	l, err := open(path)
	if err == nil {
		err = l.bind([]binding{{"standin_peer", &w.peer}, {"standin_live", &w.live}, {"standin_required", &w.required}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// token is what the stand-in's kernel gives for a process.
func (w *world) token(t *testing.T, pid int) macos.Token {
	t.Helper()
	w.peer(uint32(pid))
	tok, err := w.PeerToken(0)
	if err != nil || tok.PID() != pid || tok.Version() != 7 || tok.UID() != 501 {
		t.Fatalf("%v, %v", tok, err)
	}
	return tok
}

func TestKernelAnswers(t *testing.T) {
	w := openWorld(t)
	tok := w.token(t, 100)
	if path, err := w.Path(tok); err != nil || path != "/Applications/Agent.app/Contents/MacOS/agent" {
		t.Errorf("%q, %v", path, err)
	}
	if info, err := w.Info(100); err != nil || info.PID != 100 || info.PPID != 50 || info.Name != "agent" || info.TTY != macos.NoTTY {
		t.Errorf("%+v, %v", info, err)
	}
	if got, err := w.TokenOf(100); err != nil || got != tok {
		t.Errorf("%v, %v", got, err)
	}
	status, s, err := w.Signature(tok)
	if err != nil || status != macos.StatusSigned|macos.StatusValid|macos.StatusRuntime || s.Signer != macos.SignedByTeam ||
		s.Team != "ABCDE12345" || s.Identifier != "com.example.agent" || s.CDHash != (macos.CDHash{1, 19: 100}) {
		t.Errorf("%#x %+v, %v", status, s, err)
	}
	if fds, err := w.LaunchSockets("broker"); err != nil || !slices.Equal(fds, []int{3, 4}) {
		t.Errorf("%v, %v", fds, err)
	}
}

// TestKernelRefuses: what the kernel does not say whole is an error. The error
// numbers of libSystem's calls are brought along on macOS only.
func TestKernelRefuses(t *testing.T) {
	w := openWorld(t)
	none := w.token(t, 102)
	stale := w.token(t, 100)
	stale[28]++ // the process has exec'd since
	for name, c := range map[string]struct {
		ask  func() error
		want error
	}{
		"a closed socket":     {func() error { _, err := w.PeerToken(-1); return err }, nil},
		"a short token":       {func() error { _, err := w.PeerToken(1000); return err }, macos.ErrToken},
		"no path":             {func() error { _, err := w.Path(none); return err }, nil},
		"no process":          {func() error { _, err := w.Info(102); return err }, nil},
		"a short info":        {func() error { _, err := w.Info(107); return err }, nil},
		"no task":             {func() error { _, err := w.TokenOf(102); return err }, nil},
		"another's task":      {func() error { _, err := w.TokenOf(107); return err }, macos.ErrToken},
		"a token of the past": {func() error { _, _, err := w.Signature(stale); return err }, nil},
		"an unknown socket":   {func() error { _, err := w.LaunchSockets("x"); return err }, syscall.ENOENT},
	} {
		err := c.ask()
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestIdentify(t *testing.T) {
	w := openWorld(t)
	before := w.live()
	for pid, want := range map[int]macos.Signer{100: macos.SignedByTeam, 101: macos.SignedByNobody, 109: macos.SignedByApple} {
		_, s, err := Identify(w.Kernel, w.Code, w.token(t, pid))
		if err != nil || s.Signer != want {
			t.Errorf("%d: %+v, %v", pid, s, err)
		}
		if text, _ := s.Requirement(); w.required() != text {
			t.Errorf("%d: the framework was asked for %q, want %q", pid, w.required(), text)
		}
	}
	for pid, want := range map[int]error{102: nil, 103: macos.ErrSignature, 104: nil, 105: &StatusError{"SecCodeCheckValidity", StatusRequirementFailed},
		106: nil, 108: errNoMemory} {
		_, s, err := Identify(w.Kernel, w.Code, w.token(t, pid))
		if err == nil || s != (macos.Signature{}) {
			t.Errorf("%d was identified as %+v", pid, s)
		}
		var refused *StatusError
		if wanted, ok := want.(*StatusError); ok {
			if !errors.As(err, &refused) || *refused != *wanted {
				t.Errorf("%d: %v, want %v", pid, err, want)
			}
		} else if want != nil && !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", pid, err, want)
		}
	}
	if now := w.live(); now != before {
		t.Errorf("%d objects were not released", now-before)
	}
}

// TestMissing: a library or a symbol that is not there is an error that names
// it, and no panic.
func TestMissing(t *testing.T) {
	if _, err := OpenKernel(filepath.Join(t.TempDir(), "none.so")); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	whole, without := standin(t), standin(t, "-DWITHOUT_REQUIREMENT")
	if _, err := OpenCode(whole, without); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "SecRequirementCreateWithString") {
		t.Error(err)
	}
	if _, err := OpenCode(filepath.Join(t.TempDir(), "none.so"), whole); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
}

// TestSymbols holds every symbol that is asked of the system against the kept
// list, and the list against the stand-in, which so has each of them.
func TestSymbols(t *testing.T) {
	kept, err := os.ReadFile("testdata/symbols.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, library := range []string{LibSystem, CoreFoundation, Security, LibObjC, IOKit, CoreGraphics} {
		got.WriteString(library + "\n")
		for _, name := range Symbols()[library] {
			got.WriteString("\t" + name + "\n")
		}
	}
	for _, class := range slices.Sorted(maps.Keys(Messages())) {
		got.WriteString(class + " of Objective-C\n")
		for _, name := range Messages()[class] {
			got.WriteString("\t" + name + "\n")
		}
	}
	if got.String() != string(kept) {
		t.Errorf("testdata/symbols.txt is\n%swant\n%s", kept, got.String())
	}
	l, err := open(standin(t))
	if err != nil {
		t.Fatal(err)
	}
	for library, list := range Symbols() {
		for _, name := range list {
			if _, err := purego.Dlsym(l.handle, name); err != nil {
				t.Errorf("%s: %v", library, err)
			}
		}
	}
}
