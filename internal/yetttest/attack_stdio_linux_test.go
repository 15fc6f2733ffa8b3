package yetttest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// endOf finds the descriptor by which a process holds the other end of what is
// standard input of yett-mcp. It looks at links and opens nothing.
func endOf(t testing.TB, pid int, is func(link string, fd int) bool) string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	must(t, err)
	for _, n := range names {
		link, err := os.Readlink(filepath.Join(dir, n.Name()))
		var fd int
		fmt.Sscan(n.Name(), &fd)
		if err == nil && is(link, fd) {
			return n.Name()
		}
	}
	t.Fatalf("process %d holds no such end", pid)
	return ""
}

// TestAttackStoppedAgent: a stranger stops the agent and writes in its place
// into its pipe, which it opened through /proc.
func TestAttackStoppedAgent(t *testing.T) {
	b, up := demoBroker(t)
	p, h := agentPuppet(t, b)
	shim := p.do("shim", Bin("yett-mcp"), b.Home)
	h.ready()
	id := h.grant("http:demo.read")
	pipe, err := os.Readlink("/proc/" + shim + "/fd/0")
	must(t, err)
	fd := endOf(t, p.pid, func(link string, fd int) bool { return link == pipe })
	freeze(t, p.pid)
	stranger := newPuppet(t)
	stranger.do("openfile", fmt.Sprintf("/proc/%d/fd/%s", p.pid, fd))
	stranger.try("write", toolCall("evil", "http_request", getX)) // or nobody reads it any more
	b.ended(id, session.ShimExited, session.ChannelClosed)
	h.closed()
	up.only(t)
}

// TestAttackStolenStdinSocket: a stranger takes the agent's end of the socket to
// yett-mcp with pidfd_getfd and writes on it.
func TestAttackStolenStdinSocket(t *testing.T) {
	b, up := demoBroker(t)
	h := b.host(exec.Command(Bin("yett-mcp"), "--home", b.Home), nil)
	h.onSocket = true
	h.start().ready()
	id := h.grant("http:demo.read")
	thief := newPuppet(t)
	thief.do("steal", fmt.Sprint(os.Getpid()), fmt.Sprint(fdOf(t, h.in)))
	thief.do("write", toolCall("evil", "http_request", getX))
	if code := h.gone(); code == 0 {
		t.Error("exit 0")
	}
	b.ended(id, session.ShimExited, session.ChannelClosed)
	if h.answered(`"evil"`) {
		t.Error("the thief was answered")
	}
	up.only(t)
}

// TestAttackStolenStdinPipe: the same with a pipe opens nothing, and the kernel
// names no writer of a pipe. It cannot be told from the agent: the card says so,
// what was done stays within it, and each action has its rows.
func TestAttackStolenStdinPipe(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	asked := h.call("request_access", askRead)
	v := shown(t, b.CardOf(asked.session(t).Pending.ApprovalID)).Verified
	if !strings.Contains(v.Limits, "can imitate or steer an agent and use its session") {
		t.Errorf("the card does not say it: %s", v.Limits)
	}
	b.ApproveTag(asked.session(t).Pending.ApprovalID, asked.tag(t))
	h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":30000}`).wants(t, "granted: ")
	thief := newPuppet(t)
	thief.do("steal", fmt.Sprint(os.Getpid()), fmt.Sprint(fdOf(t, h.in)))
	thief.do("write", toolCall("ridden", "http_request", getX))
	thief.do("write", toolCall("beyond", "http_request", postX))
	ridden := h.await(`"ridden"`).said(t).wants(t, "completed: ").operation(t)
	h.await(`"beyond"`).said(t).refused(t, "capability_not_granted")
	intents := 0
	for _, row := range b.Activity() {
		if row.OperationID == ridden.OperationID && row.Kind == "intent" && strings.Contains(string(row.Request), "/v1/x") {
			intents++
		}
	}
	if intents != 1 {
		t.Errorf("%d intents of it on record", intents)
	}
	up.only(t, "GET /v1/x")
}

// TestAttackNamedSocketAsStdin: yett-mcp gets a named socket as standard input.
// Whoever connects to a name is no agent that made a pair.
func TestAttackNamedSocketAsStdin(t *testing.T) {
	b, up := demoBroker(t)
	h := b.host(exec.Command(Bin("yett-mcp"), "--home", b.Home), nil)
	h.pair = func() (mine, its *os.File, err error) {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
		if err != nil {
			return nil, nil, err
		}
		defer ln.Close()
		a, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
		if err != nil {
			return nil, nil, err
		}
		defer a.Close()
		z, err := ln.AcceptUnix()
		if err != nil {
			return nil, nil, err
		}
		defer z.Close()
		if mine, err = a.File(); err == nil {
			its, err = z.File()
		}
		return mine, its, err
	}
	h.start().ready()
	h.call("list_access", "{}").refused(t, "attribution_failed")
	b.refusedRow(wire.CodeAttributionFailed, "standard input")
	if s := b.shims(); len(s) != 0 {
		t.Errorf("a session: %+v", s)
	}
	up.only(t)
}

// TestAttackStolenAnswers: a stranger takes yett-mcp's own standard input with
// pidfd_getfd and reads what the agent asks. It can keep the agent from being
// heard; it can ask for nothing by it, since that end only reads.
func TestAttackStolenReadEnd(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	h.grant("http:demo.read")
	thief := newPuppet(t)
	thief.do("steal", fmt.Sprint(h.cmd.Process.Pid), "0")
	if _, err := thief.try("write", toolCall("evil", "http_request", getX)); err == nil {
		t.Error("the reading end of a pipe was written on")
	}
	h.call("http_request", getX).wants(t, "completed: ")
	up.only(t, "GET /v1/x")
}
