package sshexec_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// runs runs a command on an executor and wants its standard output.
func runs(t testing.TB, e *sshexec.Executor, tg sshexec.Target, k ssh.Signer, command, want string) {
	t.Helper()
	res, err := e.Do(t.Context(), tg, k, action.SSH{Command: command})
	if err != nil {
		t.Fatalf("Do(%q): %v", command, err)
	}
	if wantStatus(t, res, 0); string(res.Stdout) != want {
		t.Fatalf("Do(%q): stdout %q, want %q", command, res.Stdout, want)
	}
}

func sessionTarget(s *yetttest.SSHD, session string) sshexec.Target {
	tg := targetOf(s)
	tg.Session = session
	return tg
}

func TestOneConnectionServesTheCommandsOfASession(t *testing.T) {
	s := yetttest.StartSSHD(t)
	e, k := newExecutor(), signerOf(t, s)
	defer e.Close()
	for range 5 {
		runs(t, e, sessionTarget(s, "s1"), k, "echo one", "one\n")
	}
	res, err := e.Do(t.Context(), sessionTarget(s, "s1"), k, action.SSH{Command: "exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 3)
	runs(t, e, sessionTarget(s, "s1"), k, "cat", "")
	if n := s.Accepted(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// OpenSSH counts a session until it has looked after its process, a moment after
// it has closed the channel: the next one may be refused on the same connection.
func TestMostSessionsOfAHostAreRespected(t *testing.T) {
	s := yetttest.StartSSHD(t, "MaxSessions 1")
	e, k := newExecutor(), signerOf(t, s)
	defer e.Close()
	for range 5 {
		runs(t, e, sessionTarget(s, "s1"), k, "echo one", "one\n")
	}
}

// Whatever differs, the connection does: what a session was let in with, another
// does not ride on.
func TestConnectionsAreNotShared(t *testing.T) {
	s := yetttest.StartSSHD(t)
	e, k := newExecutor(), signerOf(t, s)
	defer e.Close()
	first := sessionTarget(s, "s1")
	runs(t, e, first, k, "echo one", "one\n")
	n := s.Accepted()
	for name, tg := range map[string]sshexec.Target{
		"another session": sessionTarget(s, "s2"),
		"no session":      sessionTarget(s, ""),
		"another list of keys": func() sshexec.Target {
			tg := sessionTarget(s, "s1")
			tg.HostKeys = append(slices.Clone(tg.HostKeys), publicLine(newTestKey(t).PublicKey()))
			return tg
		}(),
		"another name": func() sshexec.Target {
			tg := sessionTarget(s, "s1")
			tg.Address = strings.Replace(tg.Address, "127.0.0.1", "localhost", 1)
			return tg
		}(),
	} {
		runs(t, e, tg, k, "echo two", "two\n")
		if n++; s.Accepted() != n {
			t.Errorf("%s: %d connections, want %d", name, s.Accepted(), n)
		}
	}
	other := newTestKey(t)
	if _, err := e.Do(t.Context(), first, other, action.SSH{Command: "echo"}); err == nil {
		t.Error("a key that the host does not know rode on another's connection")
	}
}

// A field that says where an action goes or by what, and is not in the key,
// would let an action ride on another's connection.
func TestEveryFieldOfATargetTellsConnectionsApart(t *testing.T) {
	limits := []string{"DialTimeout", "HandshakeTimeout", "RunTimeout", "Keepalive", "MaxOutput", "Begin", "Sent", "Quiet"}
	base := sshexec.Target{Session: "s"}
	k := newTestKey(t)
	for i := range reflect.TypeFor[sshexec.Target]().NumField() {
		name := reflect.TypeFor[sshexec.Target]().Field(i).Name
		changed := base
		switch f := reflect.ValueOf(&changed).Elem().Field(i); {
		case slices.Contains(limits, name):
			continue
		case f.Kind() == reflect.String:
			f.SetString("other")
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Type() == reflect.TypeFor[[]string]():
			f.Set(reflect.ValueOf([]string{"other"}))
		case f.Type() == reflect.TypeFor[[]sshexec.Hop]():
			f.Set(reflect.ValueOf([]sshexec.Hop{{Address: "other", Signer: k}}))
		default:
			t.Errorf("%s: say here what another value is", name)
			continue
		}
		if sshexec.KeyOf(changed, k) == sshexec.KeyOf(base, k) {
			t.Errorf("%s: another value gives the same connection", name)
		}
	}
	if sshexec.KeyOf(base, k) == sshexec.KeyOf(base, newTestKey(t)) {
		t.Error("another key gives the same connection")
	}
}

// channelHost is a server that hands each session channel to do, with the
// number of its connection and of the channel on it, from 1.
func channelHost(t testing.TB, do func(conn, channel int, c *ssh.ServerConn, nc ssh.NewChannel)) (*fakeHost, sshexec.Target) {
	t.Helper()
	host := newTestKey(t)
	var conns atomic.Int64
	h := newFakeHost(t, func(c net.Conn) {
		n := int(conns.Add(1))
		serveSSH(c, host, func(conn *ssh.ServerConn, chans <-chan ssh.NewChannel) {
			channel := 0
			for nc := range chans {
				channel++
				do(n, channel, conn, nc)
			}
		})
	})
	tg := hostTarget(h, host)
	tg.Session = "s"
	return h, tg
}

// endsWell accepts a session and lets its command end well.
func endsWell(nc ssh.NewChannel) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	for req := range reqs {
		req.Reply(true, nil)
		if req.Type == "exec" {
			ch.SendRequest("exit-status", false, exitStatus(0))
			ch.Close()
		}
	}
}

func TestKeptConnectionsAreClosed(t *testing.T) {
	for name, end := range map[string]func(*sshexec.Executor){
		"with their session": func(e *sshexec.Executor) { e.CloseSession("s") },
		"all of them":        func(e *sshexec.Executor) { e.CloseKept() },
		"for good":           func(e *sshexec.Executor) { e.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			h, tg := channelHost(t, func(_, _ int, _ *ssh.ServerConn, nc ssh.NewChannel) { endsWell(nc) })
			e, k := newExecutor(), newTestKey(t)
			runs(t, e, tg, k, "x", "")
			happens(t, h.accepted, "connecting")
			select {
			case <-h.closed:
				t.Fatal("the connection was not kept")
			default:
			}
			end(e)
			happens(t, h.closed, "closing the connection")
		})
	}
}

// What is in use when its session ends is not kept afterwards.
func TestConnectionInUseIsNotKeptBeyondItsSession(t *testing.T) {
	s := yetttest.StartSSHD(t)
	e, k, g := newExecutor(), signerOf(t, s), newGate(t)
	done := make(chan error, 1)
	go func() {
		_, err := e.Do(context.Background(), sessionTarget(s, "s"), k, action.SSH{Command: g.tell() + "; " + g.hold()})
		done <- err
	}()
	g.wait(t)
	e.CloseSession("s")
	g.open()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	runs(t, e, sessionTarget(s, "s"), k, "echo new", "new\n")
	if n := s.Accepted(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestBrokenKeptConnectionIsReplaced(t *testing.T) {
	s := yetttest.StartSSHD(t)
	e, k := newExecutor(), signerOf(t, s)
	defer e.Close()
	runs(t, e, sessionTarget(s, "s"), k, "echo one", "one\n")
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	runs(t, e, sessionTarget(s, "s"), k, "echo two", "two\n")
	if n := s.Accepted(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// A host that gives one session for each connection, or falls silent, refuses
// nothing that a new connection cannot do: no command had been sent.
func TestRefusedOrSilentKeptConnectionIsReplaced(t *testing.T) {
	for name, second := range map[string]func(*ssh.ServerConn, ssh.NewChannel){
		"refuses a second session":  func(_ *ssh.ServerConn, nc ssh.NewChannel) { nc.Reject(ssh.ResourceShortage, "one is enough") },
		"closes at the second":      func(c *ssh.ServerConn, _ ssh.NewChannel) { c.Close() },
		"says nothing to a session": func(*ssh.ServerConn, ssh.NewChannel) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, tg := channelHost(t, func(_, channel int, c *ssh.ServerConn, nc ssh.NewChannel) {
				if channel == 1 {
					endsWell(nc)
				} else {
					second(c, nc)
				}
			})
			e, k := newExecutor(), newTestKey(t)
			defer e.Close()
			runs(t, e, tg, k, "x", "")
			runs(t, e, tg, k, "x", "")
			for range 2 {
				happens(t, h.accepted, "connecting")
			}
		})
	}
}

// From the host's word that the session is open the command may have left: then
// there is no second try.
func TestWhatMayHaveRunIsNotTriedAgain(t *testing.T) {
	h, tg := channelHost(t, func(_, channel int, c *ssh.ServerConn, nc ssh.NewChannel) {
		if channel == 1 {
			endsWell(nc)
			return
		}
		_, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		for range reqs { // the command
			c.Close()
		}
	})
	e, k := newExecutor(), newTestKey(t)
	defer e.Close()
	runs(t, e, tg, k, "x", "")
	_, err := e.Do(t.Context(), tg, k, action.SSH{Command: "x"})
	wantError(t, err, sshexec.CodeUpstream, true)
	happens(t, h.accepted, "connecting")
	happens(t, h.closed, "closing the connection")
	select {
	case <-h.accepted:
		t.Error("a second connection was made")
	default:
	}
}

// What a command leaves behind holds its channel, and the connection with it.
func TestConnectionWithSomethingLeftOnItIsNotKept(t *testing.T) {
	s := yetttest.StartSSHD(t)
	e, k, g := newExecutor(), signerOf(t, s), newGate(t)
	defer e.Close()
	res, err := e.Do(t.Context(), sessionTarget(s, "s"), k, action.SSH{Command: g.hold() + " & echo one"})
	if err != nil || !res.LeftOpen {
		t.Fatalf("%+v, %v", res, err)
	}
	_, err = e.Do(t.Context(), sessionTarget(s, "s"), k, action.SSH{Command: g.hold(), Timeout: 200 * time.Millisecond})
	wantError(t, err, sshexec.CodeUpstream, true)
	runs(t, e, sessionTarget(s, "s"), k, "echo two", "two\n")
	if n := s.Accepted(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

// A kept connection is asked for signs of life too.
func TestS06_DeadKeptConnectionIsFoundOut(t *testing.T) {
	s := yetttest.StartSSHD(t)
	f := newFreezer(t, s.Address)
	e, k := newExecutor(), signerOf(t, s)
	defer e.Close()
	tg := sessionTarget(s, "s")
	tg.Address, tg.Keepalive = f.address, 50*time.Millisecond
	runs(t, e, tg, k, "echo one", "one\n")
	f.frozen.Store(true)
	happens(t, f.closed, "closing the connection")
}

func TestCancelWhileAKeptConnectionIsSilent(t *testing.T) {
	h, tg := channelHost(t, func(_, channel int, _ *ssh.ServerConn, nc ssh.NewChannel) {
		if channel == 1 {
			endsWell(nc)
		}
	})
	e, k := newExecutor(), newTestKey(t)
	defer e.Close()
	runs(t, e, tg, k, "x", "")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := e.Do(ctx, tg, k, action.SSH{Command: "x"})
	if e := wantError(t, err, sshexec.CodeUpstream, false); !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("cause = %v", e.Cause)
	}
	happens(t, h.closed, "closing the connection")
}
