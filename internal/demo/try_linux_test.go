package demo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests run yett try as people do: the built programs, as root and as an
// ordinary account, on a terminal and without one.

// account is a numeric account of tests that root starts. It has no entry in
// the account database, so OpenSSH does not serve it.
const account = 64918

const tryPatience = 90 * time.Second

var programsDir string // for TestMain to remove

// programs builds both programs once, as make build does.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "yett-demo-")
	if err != nil {
		return "", err
	}
	programsDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/", "github.com/yett-broker/yett/cmd/yett", "github.com/yett-broker/yett/cmd/yett-mcp")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	if os.Geteuid() == 0 { // so that no yett try takes it away from the tests of other packages
		os.Mkdir("/run/sshd", 0o755)
	}
	code := m.Run()
	if programsDir != "" {
		os.RemoveAll(programsDir)
	}
	os.Exit(code)
}

// everyAccount runs a test as who runs it and, for root, as an ordinary
// account too.
func everyAccount(t *testing.T, body func(t *testing.T, as *syscall.Credential)) {
	t.Run("self", func(t *testing.T) { body(t, nil) })
	if os.Geteuid() == 0 {
		t.Run("account", func(t *testing.T) { body(t, &syscall.Credential{Uid: account, Gid: account}) })
	}
}

// attempt is a prepared yett try with a temporary directory of its own.
type attempt struct {
	*exec.Cmd
	tmp string
}

func try(t *testing.T, as *syscall.Credential, bin string, args ...string) *attempt {
	t.Helper()
	tmp, err := os.MkdirTemp("/tmp", "yt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	if as != nil {
		if err := os.Chown(tmp, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(filepath.Join(bin, "yett"), append([]string{"try"}, args...)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp, "HOME=" + tmp}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setsid: true}
	t.Cleanup(func() {
		if c.Process != nil && c.ProcessState == nil {
			c.Process.Kill()
			c.Wait()
		}
	})
	return &attempt{c, tmp}
}

// wantNothingLeft fails when a file or a process of the attempt is still there.
func (a *attempt) wantNothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(a.tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("left behind: %s", e.Name())
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(a.tmp)) {
			t.Errorf("still running: %s: %q", p, b)
		}
	}
}

func built(t *testing.T) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func TestTry_ProvesEverything(t *testing.T) {
	everyAccount(t, func(t *testing.T, as *syscall.Credential) {
		a := try(t, as, built(t), "--yes", "--json")
		var stderr bytes.Buffer
		a.Stderr = &stderr
		out, err := a.Output()
		var r struct {
			OK      bool
			Seconds float64
			Proven  []struct {
				Name, Claim, Found string
				OK                 bool
			}
		}
		if jsonErr := json.Unmarshal(out, &r); jsonErr != nil || err != nil || !r.OK || len(r.Proven) != 13 {
			t.Fatalf("%v, %v, ok %v, %d claims\n%s\n%s", err, jsonErr, r.OK, len(r.Proven), out, &stderr)
		}
		for _, p := range r.Proven {
			t.Logf("%v %s: %s (%s)", p.OK, p.Name, p.Claim, p.Found)
			if !p.OK || p.Found == "" {
				t.Errorf("%s: %v, %q", p.Name, p.OK, p.Found)
			}
		}
		a.wantNothingLeft(t)
	})
}

func TestTry_WithoutTerminalSaysWhatToDo(t *testing.T) {
	a := try(t, nil, built(t))
	out, err := a.CombinedOutput()
	if exitCode(err) != 1 || !strings.Contains(string(out), "YES=1") {
		t.Errorf("exit %d: %s", exitCode(err), out)
	}
	a.wantNothingLeft(t)
}

// A shim that does not speak MCP: the failure is told, nothing is claimed and
// nothing is left.
func TestTry_BrokenShimFailsCleanly(t *testing.T) {
	dir := t.TempDir()
	if err := os.Link(filepath.Join(built(t), "yett"), filepath.Join(dir, "yett")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "yett-mcp"), []byte("#!/bin/sh\necho no protocol here\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := try(t, nil, dir, "--yes")
	out, err := a.CombinedOutput()
	if exitCode(err) != 1 || !strings.Contains(string(out), "yett-mcp") || !strings.Contains(string(out), "✗ The agent used an API") {
		t.Errorf("exit %d: %s", exitCode(err), out)
	}
	a.wantNothingLeft(t)
}

// What ends a program from outside ends this one in order.
func TestTry_InterruptedLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		at     string
	}{
		{syscall.SIGINT, "two places"}, {syscall.SIGTERM, "yett init"}, {syscall.SIGHUP, "yett secret set"}, {syscall.SIGINT, "it tries GET"},
	} {
		t.Run(c.at, func(t *testing.T) {
			a := try(t, nil, built(t), "--yes")
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			a.Stdout, a.Stderr = w, w
			if err := a.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			s := newScreen(r, nil)
			s.wait(t, c.at)
			a.Process.Signal(c.signal)
			if err := a.Wait(); exitCode(err) != 1 {
				t.Errorf("exit %d\n%s", exitCode(err), s.text())
			}
			s.wait(t, "Interrupted")
			a.wantNothingLeft(t)
		})
	}
}

func TestTry_ClosedOutputLeavesNothing(t *testing.T) {
	a := try(t, nil, built(t), "--yes")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	a.Stdout = w
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Read(make([]byte, 100))
	r.Close()
	if err := a.Wait(); exitCode(err) != 1 {
		t.Errorf("exit %d", exitCode(err))
	}
	a.wantNothingLeft(t)
}

func TestTry_PersonApprovesOnTheTerminal(t *testing.T) {
	everyAccount(t, func(t *testing.T, as *syscall.Credential) {
		a, s := onTerminal(t, as)
		s.wait(t, "Yett passphrase: ")
		s.write(t, "not the passphrase\n")
		s.wait(t, "That is not the passphrase.")
		s.wait(t, "Yett passphrase: ")
		s.write(t, s.between("scratch vault is:", "\n")+"\n")
		s.wait(t, "Type yes: ")
		s.write(t, "yes\n")
		err := a.Wait()
		s.wait(t, "13 of 13")
		if exitCode(err) != 0 || strings.Contains(s.text(), "✗") {
			t.Errorf("exit %d\n%s", exitCode(err), s.text())
		}
		a.wantNothingLeft(t)
	})
}

func TestTry_PersonSaysNo(t *testing.T) {
	a, s := onTerminal(t, nil)
	for range 3 {
		s.wait(t, "Yett passphrase: ")
		s.write(t, s.between("scratch vault is:", "\n")+"\n")
		s.wait(t, "Type yes: ")
		s.write(t, "no\n")
	}
	err := a.Wait()
	s.wait(t, "not approved")
	if exitCode(err) != 1 || !strings.Contains(s.text(), "✗ The agent used an API") || !strings.Contains(s.text(), "✓ Before a person approved") {
		t.Errorf("exit %d\n%s", exitCode(err), s.text())
	}
	a.wantNothingLeft(t)
}

// Ctrl-C at the question for the passphrase, where the terminal does not echo.
func TestTry_InterruptedAtThePrompt(t *testing.T) {
	a, s := onTerminal(t, nil)
	s.wait(t, "Yett passphrase: ")
	s.write(t, "\x03")
	if err := a.Wait(); exitCode(err) != 1 {
		t.Errorf("exit %d\n%s", exitCode(err), s.text())
	}
	s.wait(t, "Interrupted")
	if !s.echoes(t) {
		t.Error("the terminal was left without echo")
	}
	a.wantNothingLeft(t)
}

// screen is what a program has shown so far, and where it is typed to.
type screen struct {
	in *os.File

	mu    sync.Mutex
	shown bytes.Buffer
	seen  int // by wait
	more  *sync.Cond
	ended bool
}

func newScreen(out io.Reader, in *os.File) *screen {
	s := &screen{in: in}
	s.more = sync.NewCond(&s.mu)
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := out.Read(b)
			s.mu.Lock()
			s.shown.Write(b[:n])
			s.ended = s.ended || err != nil
			s.more.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// wait waits for a text after the last one that was waited for.
func (s *screen) wait(t *testing.T, text string) {
	t.Helper()
	timer := time.AfterFunc(tryPatience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = true
		s.more.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if i := strings.Index(strings.ToLower(s.shown.String()[s.seen:]), strings.ToLower(text)); i >= 0 {
			s.seen += i + len(text)
			return
		}
		if s.ended {
			t.Fatalf("%q was not shown:\n%s", text, s.shown.String())
		}
		s.more.Wait()
	}
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// between returns what is shown between two texts, without blanks around it.
func (s *screen) between(from, to string) string {
	_, text, _ := strings.Cut(s.text(), from)
	text, _, _ = strings.Cut(text, to)
	return strings.TrimSpace(text)
}

func (s *screen) write(t *testing.T, text string) {
	t.Helper()
	if _, err := s.in.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// onTerminal starts yett try on a terminal of its own.
func onTerminal(t *testing.T, as *syscall.Credential) (*attempt, *screen) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	tty, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() }) // held, so that the master can still be asked afterwards
	if as != nil {
		if err := os.Chown(name, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	a := try(t, as, built(t))
	a.Stdin, a.Stdout, a.Stderr = tty, tty, tty
	a.SysProcAttr.Setctty = true
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	return a, newScreen(master, master)
}

// echoes reports whether the terminal shows what is typed.
func (s *screen) echoes(t *testing.T) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(s.in.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}
