package yetttest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	askRead = `{"capabilities":["http:demo.read"],"wait_ms":0}`
	getX    = `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`
)

// shim makes a puppet start yett-mcp in the way of a hostile program. What the
// test writes on the puppet's file 3 goes to it, and its answers come on file 4.
// args: the program, the home; then, in any order, "socket" instead of a pipe,
// "helper" if another process writes, "clone-parent" if the puppet's own parent
// is to look like the one that started it.
func (s *puppetState) shim(args []string) (string, error) {
	for _, fd := range []int{3, 4} {
		unix.CloseOnExec(fd) // else whoever is started here holds the ends open
	}
	in, out := os.NewFile(3, "in"), os.NewFile(4, "out")
	defer out.Close()
	c := exec.Command(args[0], "--home", args[1])
	c.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	words := strings.Join(args[2:], " ")
	mine, its, err := link(strings.Contains(words, "socket"))
	if err != nil {
		return "", err
	}
	c.Stdin, c.Stdout, c.Stderr = its, out, os.Stderr
	if strings.Contains(words, "clone-parent") {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT}
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	its.Close()
	if !strings.Contains(words, "helper") {
		go io.Copy(mine, in)
		return fmt.Sprint(c.Process.Pid), nil
	}
	helper := exec.Command("/bin/cat")
	helper.Stdin, helper.Stdout = in, mine
	return fmt.Sprint(c.Process.Pid), helper.Start()
}

// agentPuppet is a puppet that can start yett-mcp, and the host's end of that.
func agentPuppet(t testing.TB, b *Broker, program ...string) (*puppet, *host) {
	t.Helper()
	inR, in, err := os.Pipe()
	must(t, err)
	out, outW, err := os.Pipe()
	must(t, err)
	c := exec.Command("/proc/self/exe")
	if len(program) > 0 {
		c = exec.Command(program[0])
	}
	c.ExtraFiles = []*os.File{inR, outW}
	p := startPuppet(t, c)
	inR.Close()
	outW.Close()
	h := b.host(c, nil)
	h.in, h.out, h.exited = in, out, nil
	read := make(chan struct{})
	go func() { h.read(); close(read) }()
	t.Cleanup(func() {
		in.Close()
		c.Process.Kill()
		<-p.exited
		out.Close()
		<-read
	})
	return p, h
}

// TestAttackSecondShimByShell: a child of the agent starts another yett-mcp
// through `bash -c 'exec …'`, so that the agent is its parent. The kernel cannot
// tell it from one that the agent started: it is a session of its own, with a
// card of its own, and has nothing of the first.
func TestAttackSecondShimByShell(t *testing.T) {
	b, up := demoBroker(t)
	first := b.startShim().ready()
	id := first.grant("http:demo.read")
	second := b.host(exec.Command("bash", "-c", `exec "$0" --home "$1"`, Bin("yett-mcp"), b.Home), nil).start().ready()
	second.call("http_request", getX).refused(t, "capability_not_granted")
	asked := second.call("request_access", askRead).wants(t, "pending: ").session(t)
	if asked.SessionID == id || len(b.shims()) != 2 {
		t.Errorf("not two sessions: %s, %s", asked.SessionID, id)
	}
	if v := shown(t, b.CardOf(asked.Pending.ApprovalID)).Verified; v.Shim == nil || v.Shim.Kernel.PID != second.cmd.Process.Pid {
		t.Errorf("the card does not name the second shim: %+v", v.Shim)
	}
	second.call("http_request", getX).refused(t, "capability_not_granted")
	first.call("http_request", getX).wants(t, "completed: ")
	up.only(t, "GET /v1/x")
}

// TestAttackCloneParent: a child of the agent starts yett-mcp as its own
// sibling (CLONE_PARENT). On a socket the kernel says who made it, and there is
// no session; on a pipe it is a session of its own, with its own card.
func TestAttackCloneParent(t *testing.T) {
	b, up := demoBroker(t)
	first := b.startShim().ready()
	first.grant("http:demo.read")
	for _, way := range []string{"socket", "pipe"} {
		p, h := agentPuppet(t, b)
		p.do("shim", Bin("yett-mcp"), b.Home, way, "clone-parent")
		h.ready()
		if way == "socket" {
			h.call("http_request", getX).refused(t, "attribution_failed")
			b.refusedRow(wire.CodeAttributionFailed)
			continue
		}
		h.call("http_request", getX).refused(t, "capability_not_granted")
		asked := h.call("request_access", askRead).session(t)
		if v := shown(t, b.CardOf(asked.Pending.ApprovalID)).Verified; v.Agent.Kernel.PID != os.Getpid() || !strings.Contains(v.Limits, "can imitate or steer an agent") {
			t.Errorf("the card: %+v", v)
		}
	}
	if n := len(b.shims()); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	up.only(t)
}

// TestAttackAgentBecomesFamiliar: the process that started yett-mcp becomes a
// familiar program, while a helper that nobody sees does the writing.
func TestAttackAgentBecomesFamiliar(t *testing.T) {
	b, up := demoBroker(t)
	familiar := copyOf(t, t.TempDir(), "claude")

	p, h := agentPuppet(t, b) // after the session began: the agent has changed
	p.do("shim", Bin("yett-mcp"), b.Home, "helper")
	h.ready()
	id := h.grant("http:demo.read")
	p.do("exec", familiar)
	h.call("http_request", getX).refused(t, "session_ended", session.EvidenceChanged)
	b.changed(id, wire.CodeSessionEnded)

	p, h = agentPuppet(t, b) // before: on a socket the kernel names the helper
	p.do("shim", Bin("yett-mcp"), b.Home, "socket", "helper")
	p.do("exec", familiar)
	h.send(initialize("init", "2025-11-25"), initialized, toolCall(1, "http_request", getX))
	h.writeUntilClosed()
	if h.answered("1") {
		if r := h.await("1"); r.Error == nil { // a refusal if it was written before yett-mcp could look
			t.Errorf("the helper was answered: %+v", r)
		}
	}
	up.only(t)
}

// TestAttackFamiliarHost: the same on a pipe, before anything was asked. The
// kernel names no writer of a pipe: the card says what it cannot tell, and it is
// a session of its own that has nothing.
func TestAttackFamiliarHost(t *testing.T) {
	b, up := demoBroker(t)
	p, h := agentPuppet(t, b)
	p.do("shim", Bin("yett-mcp"), b.Home, "helper")
	p.do("exec", copyOf(t, t.TempDir(), "claude"))
	h.ready()
	h.call("http_request", getX).refused(t, "capability_not_granted")
	asked := h.call("request_access", askRead).session(t)
	v := shown(t, b.CardOf(asked.Pending.ApprovalID)).Verified
	if v.Agent.Kernel.PID != p.pid || filepath.Base(v.Agent.Kernel.ExePath) != "claude" || !strings.Contains(v.Limits, "not the code it runs or who steers it") {
		t.Errorf("the card: %+v", v)
	}
	up.only(t)
}

// subreaper makes this process adopt orphans for the length of a test.
func subreaper(t testing.TB) {
	t.Helper()
	must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
}

// TestAttackOrphanOfASubreaper: the process that started yett-mcp dies, and a
// process that looks like an agent adopts the shim. The session ends.
func TestAttackOrphanOfASubreaper(t *testing.T) {
	subreaper(t)
	b, up := demoBroker(t)
	p, h := agentPuppet(t, b)
	shim := p.do("shim", Bin("yett-mcp"), b.Home, "helper")
	h.ready()
	id := h.grant("http:demo.read")
	p.order("exit")
	<-p.exited
	h.in.WriteString(toolCall("evil", "http_request", getX) + "\n") // the helper still holds the pipe
	b.ended(id, session.AgentExited)
	h.closed()
	var pid int
	fmt.Sscan(shim, &pid)
	awaitGone(t, pid)
	unix.Wait4(pid, nil, 0, nil)
	b.noCards()
	up.only(t)
}

// TestAttackAdoptedBeforeTheStart: the middle process is gone before yett-mcp
// runs. Nobody can tell the adopter from the one that started it: its name
// stands on the card, and the session has nothing.
func TestAttackAdoptedBeforeTheStart(t *testing.T) {
	subreaper(t)
	b, up := demoBroker(t)
	h := b.host(exec.Command("/bin/sh", "-c",
		`exec 3<&0; p=$$; { while [ -d /proc/$p ]; do sleep 0.01; done; exec "$0" --home "$1"; } <&3 3<&- &`, Bin("yett-mcp"), b.Home), nil).start()
	<-h.exited
	h.ready()
	h.call("http_request", getX).refused(t, "capability_not_granted")
	asked := h.call("request_access", askRead).session(t)
	v := shown(t, b.CardOf(asked.Pending.ApprovalID)).Verified
	if v.Agent.Kernel.PID != os.Getpid() || v.Shim == nil {
		t.Errorf("the card: %+v", v)
	}
	h.in.Close()
	h.closed()
	unix.Wait4(v.Shim.Kernel.PID, nil, 0, nil)
	up.only(t)
}

// TestAttackGrandchildWritesOn: the agent is killed while a grandchild holds its
// end of the pipe and goes on asking.
func TestAttackGrandchildWritesOn(t *testing.T) {
	b, up := demoBroker(t)
	for _, way := range []string{"pipe", "socket"} {
		p, h := agentPuppet(t, b)
		words := []string{"shim", Bin("yett-mcp"), b.Home, "helper"}
		if way == "socket" { // there the helper would not get that far
			words = []string{"shim", Bin("yett-mcp"), b.Home, "socket"}
		}
		p.do(words...)
		h.ready()
		id := h.grant("http:demo.read")
		must(t, syscall.Kill(p.pid, syscall.SIGKILL))
		h.in.WriteString(toolCall("evil", "http_request", getX) + "\n")
		b.ended(id, session.AgentExited)
		if why := b.endRow(id); why != session.AgentExited {
			t.Errorf("%s: the ledger says %q", way, why)
		}
		h.closed()
	}
	up.only(t)
}
