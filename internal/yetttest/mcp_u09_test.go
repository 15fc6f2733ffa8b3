package yetttest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// TestAttackExecAfterConnect: the process stays, the program becomes another.
func TestAttackExecAfterConnect(t *testing.T) {
	b, up := demoBroker(t)
	for _, as := range []string{"itself", "another"} {
		c := player("native", b.Home, as)
		out, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		lines := bufio.NewReader(out)
		first, err := lines.ReadString('\n')
		must(t, err)
		id := strings.TrimSpace(strings.TrimPrefix(first, "session "))
		b.Approve(b.WaitCard(), "--for", "1h")
		answer, err := io.ReadAll(lines)
		must(t, err)
		c.Wait()
		if as == "itself" { // the same frame of the program that was approved
			if !strings.Contains(string(answer), `"state":"completed"`) || len(up.Seen()) != 1 {
				t.Fatalf("as itself: %s", answer)
			}
			continue
		}
		if !strings.Contains(string(answer), `"session_ended"`) || !strings.Contains(string(answer), session.EvidenceChanged) {
			t.Errorf("after exec: %s", answer)
		}
		b.changed(id, wire.CodeSessionEnded)
	}
	if seen := up.Seen(); len(seen) != 1 {
		t.Errorf("the upstream saw %v", seen)
	}
}

// changed wants a session to have ended because its evidence changed, and the
// ledger to say so.
func (b *Broker) changed(id, code string) {
	b.T.Helper()
	b.ended(id, session.EvidenceChanged)
	if why := b.endRow(id); why != session.EvidenceChanged {
		b.T.Errorf("the ledger says %q", why)
	}
	for _, r := range b.Activity() {
		if r.Kind == "refused" && r.SessionID == id && strings.Contains(string(r.Outcome), code) {
			return
		}
	}
	b.T.Errorf("the refusal %s left no row", code)
}

// TestAttackForeignWriters: a child that inherited the connection, and a process
// that got it by SCM_RIGHTS, write a well-formed request.
func TestAttackForeignWriters(t *testing.T) {
	b, up := demoBroker(t)
	for _, way := range []string{"inherited", "passed"} {
		c := b.Granted("http:demo.read")
		c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/own"})
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 77, "method": wire.MethodActionRequest,
			"params": c.Next(map[string]any{"capability": "http:demo.read", "action": map[string]any{"method": "GET", "path": "/v1/evil"}, "wait_ms": 10_000})})
		must(t, err)
		conn, err := c.conn.File()
		must(t, err)
		if way == "inherited" {
			w := player("write", string(line))
			w.ExtraFiles = []*os.File{conn}
			play(t, w)
		} else {
			passTo(t, player("receive", string(line)), conn)
		}
		conn.Close()
		if r, ok := c.Read(); ok && r.Code() != wire.CodeAttributionFailed {
			t.Errorf("%s: %q %s", way, r.Code(), r.Result)
		}
		if r, ok := c.Read(); ok {
			t.Errorf("%s: the channel is open: %+v", way, r)
		}
		b.changed(c.Session.SessionID, wire.CodeAttributionFailed)
	}
	for _, seen := range up.Seen() {
		if seen != "GET /v1/own" {
			t.Errorf("the upstream saw %s", seen)
		}
	}
	if n := len(up.Seen()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// passTo runs a command that gets a descriptor by SCM_RIGHTS over its file 3.
func passTo(t testing.TB, c *exec.Cmd, f *os.File) {
	t.Helper()
	mine, its, err := link(true)
	must(t, err)
	c.ExtraFiles = []*os.File{its}
	must(t, c.Start())
	its.Close()
	conn, err := net.FileConn(mine)
	must(t, err)
	mine.Close()
	defer conn.Close()
	_, _, err = conn.(*net.UnixConn).WriteMsgUnix([]byte("x"), syscall.UnixRights(fdOf(t, f)), nil)
	must(t, err)
	must(t, c.Wait())
}
