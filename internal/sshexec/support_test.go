package sshexec_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// patience is how long a test waits for what must happen; it is never a part
// of what is tested.
const patience = 30 * time.Second

func noPorts() []int { return nil }

func newExecutor() *sshexec.Executor { return sshexec.New(sshexec.Options{OwnPorts: noPorts}) }

// targetOf is a target for a server on loopback.
func targetOf(s *yetttest.SSHD) sshexec.Target {
	return sshexec.Target{Address: s.Address, User: s.User, HostKeys: []string{s.HostKey}, Private: true}
}

func signerOf(t testing.TB, s *yetttest.SSHD) ssh.Signer {
	t.Helper()
	return parseKey(t, s.ClientKey)
}

func parseKey(t testing.TB, pem []byte) ssh.Signer {
	t.Helper()
	k, err := sshexec.ParseKey(pem)
	if err != nil {
		t.Fatalf("ParseKey: %v", err)
	}
	return k
}

// perform runs a command and wants no error.
func perform(t testing.TB, s *yetttest.SSHD, command string) *sshexec.Result {
	t.Helper()
	res, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s), action.SSH{Command: command})
	if err != nil {
		t.Fatalf("Do(%q): %v", command, err)
	}
	return res
}

func wantStatus(t testing.TB, res *sshexec.Result, want int) {
	t.Helper()
	if e := res.Exit; e.Status == nil || *e.Status != want || e.Signal != "" || e.Unknown {
		t.Errorf("exit = %s, want status %d and nothing else", show(e), want)
	}
}

func wantError(t testing.TB, err error, code string, maybeSent bool) *sshexec.Error {
	t.Helper()
	var e *sshexec.Error
	if !errors.As(err, &e) {
		t.Fatalf("err = %v (%T), want an *Error", err, err)
	}
	if e.Code != code || e.MaybeSent != maybeSent {
		t.Fatalf("err = %v (code %s, maybe sent %v), want code %s, maybe sent %v", e, e.Code, e.MaybeSent, code, maybeSent)
	}
	return e
}

// gate lets a test know that a remote command runs, and holds it there.
type gate struct{ started, release string }

func newGate(t testing.TB) *gate {
	t.Helper()
	dir := t.TempDir()
	g := &gate{started: filepath.Join(dir, "started"), release: filepath.Join(dir, "release")}
	for _, name := range []string{g.started, g.release} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(g.open)
	return g
}

// tell is shell text that reports the command to be running.
func (g *gate) tell() string { return "echo go > " + g.started }

// hold is shell text that waits until open.
func (g *gate) hold() string { return "cat " + g.release }

// open lets hold end, and one that begins later end at once.
func (g *gate) open() {
	f, err := os.OpenFile(g.release, os.O_RDWR, 0) // waits for nobody
	if err != nil {
		return // opened before
	}
	os.Remove(g.release)
	f.Close()
}

// wait returns when tell was run.
func (g *gate) wait(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(g.started, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 3)); err != nil {
		t.Fatalf("the command did not begin: %v", err)
	}
}

// answer is what Do returned.
type answer struct {
	res *sshexec.Result
	err error
}

// begin calls Do and returns at once.
func begin(ctx context.Context, tg sshexec.Target, k ssh.Signer, r action.SSH) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		res, err := newExecutor().Do(ctx, tg, k, r)
		c <- answer{res, err}
	}()
	return c
}

func receive(t testing.TB, c <-chan answer) answer {
	t.Helper()
	select {
	case a := <-c:
		return a
	case <-time.After(patience):
		t.Fatal("Do did not return")
		return answer{}
	}
}

// newTestKey returns an Ed25519 signer.
func newTestKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publicLine(k ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
}

// fakeHost is a TCP server on loopback that treats every connection with
// serve. closed is told when serve has returned.
type fakeHost struct {
	address  string
	accepted chan struct{}
	closed   chan struct{}
}

func newFakeHost(t testing.TB, serve func(net.Conn)) *fakeHost {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHost{address: l.Addr().String(), accepted: make(chan struct{}, 16), closed: make(chan struct{}, 16)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.accepted <- struct{}{}
			go func() {
				c.SetDeadline(time.Now().Add(2 * patience))
				serve(c)
				c.Close()
				h.closed <- struct{}{}
			}()
		}
	}()
	return h
}

func happens(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: did not happen", what)
	}
}
