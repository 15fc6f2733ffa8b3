package yetttest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// exited waits for the end of the broker and returns its exit code.
func (b *Broker) exited() int {
	b.T.Helper()
	done := make(chan struct{})
	cmd := b.cmd
	go func() { cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(Patience):
		b.T.Fatal("the broker runs on")
	}
	b.cmd = nil
	return cmd.ProcessState.ExitCode()
}

// TestB8_EveryStateOfTheBroker: a shim that outlives its broker says in each
// state what the person has to do, goes on running, and gets a new session with
// new decisions once the broker is back.
func TestB8_EveryStateOfTheBroker(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	first := h.grant("http:demo.read")
	const get = `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`
	h.call("http_request", get).wants(t, "completed: HTTP 200")
	again := func(code string, parts ...string) {
		t.Helper()
		h.call("http_request", get).refused(t, code, append(parts, "Tell the person", "Nothing was executed")...)
	}

	must(t, b.cmd.Process.Signal(syscall.SIGSTOP))
	standStill(t, b.PID())
	stopped := b.startShim().ready() // a new one: the old one's channel still stands
	stopped.call("list_access", "{}").refused(t, "unavailable", "is there but does not answer", "is stopped", "Tell the person")
	if r := b.RunPlain("status"); r.Code != 4 || !strings.Contains(r.Stderr, "does not answer") {
		t.Errorf("status of a stopped broker: exit %d %s", r.Code, r.Stderr)
	}
	must(t, b.cmd.Process.Signal(syscall.SIGCONT))
	stopped.call("list_access", "{}").wants(t, "can be asked for")

	must(t, os.Chmod(b.Home, 0)) // as a sandbox around the agent does it
	shut := b.startShim().ready()
	shut.call("list_access", "{}").refused(t, "unavailable", "may not reach the broker's socket", "allow the socket there: "+b.Location().Socket, "Tell the person")
	if r := b.RunPlain("status"); r.Code != 4 || !strings.Contains(r.Stderr, "may not reach") {
		t.Errorf("status without rights: exit %d %s", r.Code, r.Stderr)
	}
	must(t, os.Chmod(b.Home, 0o700))
	shut.call("list_access", "{}").wants(t, "can be asked for")

	b.Kill()
	h.call("http_request", get) // finds the end of the channel
	again("unavailable", "has ended and left its socket", "yett up")
	must(t, os.RemoveAll(filepath.Dir(b.Location().Socket)))
	again("unavailable", "is not running", "yett up")
	b.Serve()
	again("locked", "yett unlock")
	b.Unlock()
	h.call("http_request", get).wants(t, "This is a new session", "capability_not_granted")
	if second := h.grant("http:demo.read"); second == first {
		t.Error("the old session came back")
	}
	h.call("http_request", get).wants(t, "completed: HTTP 200")
	up.only(t, "GET /v1/x", "GET /v1/x")
	b.Run("lock")
	h.call("http_request", get).refused(t, "session_ended", "(locked)", "yett unlock", "Tell the person")
	again("locked", "yett unlock")
}

// TestStatusInEveryState: its shape, and the exit codes.
func TestStatusInEveryState(t *testing.T) {
	b := New(t)
	members := []string{"state", "broker_version", "broker_instance", "endpoint", "profile", "home", "pending", "sessions"}
	want := func(state string, code int) {
		t.Helper()
		r := b.RunPlain("status", "--json")
		var st map[string]any
		r.JSON(t, &st)
		if r.Code != code || st["state"] != state {
			t.Errorf("exit %d, state %v; want %d, %s\n%s", r.Code, st["state"], code, state, r.Stderr)
		}
		for _, m := range members {
			if _, ok := st[m]; !ok {
				t.Errorf("%s: there is no %s: %s", state, m, r.Stdout)
			}
		}
		if st["endpoint"] != b.Location().Socket || st["home"] != b.Home || st["profile"] != "desktop" {
			t.Errorf("%s: %s", state, r.Stdout)
		}
		var fail struct{ Error wire.Reason }
		if err := json.Unmarshal([]byte(r.Stderr), &fail); code != 0 && (err != nil || fail.Error.Code != state || fail.Error.NextStep == "") {
			t.Errorf("%s: standard error: %v %s", state, err, r.Stderr)
		}
	}
	want("unavailable", 4)
	b.Serve()
	want("locked", 0)
	b.Unlock()
	want("ready", 0)
	b.Open().OpenSession()
	if st := b.status(); st.Sessions != 1 || st.UpdateWaiting {
		t.Errorf("%+v", st)
	}
	must(t, os.Chmod(b.Location().Socket, 0o666))
	want("unavailable", 4)
	if r := b.RunPlain("status"); !strings.Contains(r.Stderr, "not safe to use") {
		t.Errorf("of a socket that is open to all: %s", r.Stderr)
	}
	must(t, os.Chmod(b.Location().Socket, 0o600))
	b.Kill()
	want("unavailable", 4)
	if r := b.RunPlain("status"); !strings.Contains(r.Stderr, "has ended and left its socket") {
		t.Errorf("of a leftover: %s", r.Stderr)
	}
}

// TestE4_ALostPathEndsTheBroker: a logout takes the runtime directory away, or
// something takes the path. Nobody could lock the broker or take anything back
// any more, so it ends, says why, and leaves alone what is not its own.
func TestE4_ALostPathEndsTheBroker(t *testing.T) {
	for _, how := range []string{"the directory is gone", "the node is gone", "another node"} {
		t.Run(how, func(t *testing.T) {
			b, up := demoBroker(t)
			c := b.Granted("http:demo.read")
			c.MustAct("http:demo.read", readX)
			socket := b.Location().Socket
			why := "it is gone"
			switch how {
			case "the directory is gone":
				must(t, os.RemoveAll(filepath.Dir(socket)))
			case "the node is gone":
				must(t, os.Remove(socket))
			default:
				must(t, os.Remove(socket))
				must(t, os.WriteFile(socket, []byte("kept"), 0o600))
				why = "another object has taken its place"
			}
			if _, open := c.Read(); open {
				t.Error("the session's channel had something to say")
			}
			if code := b.exited(); code != 1 {
				t.Errorf("exit %d", code)
			}
			for _, part := range []string{"nobody can reach it", why, "Start it again"} {
				if !strings.Contains(string(b.Printed()), part) {
					t.Errorf("it does not say %q", part)
				}
			}
			if how == "another node" {
				if kept, err := os.ReadFile(socket); err != nil || string(kept) != "kept" {
					t.Errorf("the other node: %q, %v", kept, err)
				}
				must(t, os.Remove(socket))
			}
			b.Serve()
			b.Unlock()
			if live := slices.DeleteFunc(b.Sessions(), func(s wire.Session) bool { return s.State == "ended" }); len(live) != 0 {
				t.Errorf("%d sessions go on", len(live))
			}
			up.only(t, "GET /v1/x")
		})
	}
}
