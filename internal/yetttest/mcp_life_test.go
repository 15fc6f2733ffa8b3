package yetttest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

const postX = `{"capability":"http:demo.write","method":"POST","path":"/v1/x"}`

// noCards wants no card to wait any more.
func (b *Broker) noCards() {
	b.T.Helper()
	if cards := b.Pending(); len(cards) > 0 {
		b.T.Errorf("%d cards still wait", len(cards))
	}
}

// TestB1_EndOfStdinEndsTheSession, and withdraws what it asked.
func TestB1_EndOfStdinEndsTheSession(t *testing.T) {
	b, _ := demoBroker(t)
	h := b.startShim().ready()
	id := h.grant("http:demo.read")
	h.begin("request_access", `{"capabilities":["http:demo.write"],"wait_ms":50000}`)
	b.WaitCard()
	h.in.Close()
	if code := h.gone(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if tail := h.closed(); len(tail) > 0 {
		t.Errorf("an unfinished line: %q", tail)
	}
	b.ended(id, session.ShimExited, session.ChannelClosed)
	b.noCards()
}

// TestB1_DeathOfTheAgentEndsTheSession at once, on a pipe and on a socket, also
// while a grandchild holds the end that the agent wrote on.
func TestB1_DeathOfTheAgentEndsTheSession(t *testing.T) {
	b, _ := demoBroker(t)
	for _, ways := range [][]string{{"pipe"}, {"socket"}, {"pipe", "grandchild"}, {"socket", "grandchild"}} {
		h := b.startAgent(ways...).ready()
		id := h.grant("http:demo.read")
		h.begin("request_access", `{"capabilities":["http:demo.write"],"wait_ms":50000}`)
		b.WaitCard()
		shim := h.shim()
		must(t, h.cmd.Process.Kill())
		b.ended(id, session.AgentExited)
		if why := b.endRow(id); why != session.AgentExited {
			t.Errorf("%v: the ledger says %q", ways, why)
		}
		awaitGone(t, shim)
		b.noCards()
		if len(ways) == 2 && dead(h.grandchild()) {
			t.Errorf("%v: the grandchild did not hold the pipe to the end", ways)
		}
	}
	n := b.startNode()
	id := n.call("request_access", map[string]any{"capabilities": []string{"http:demo.read"}, "wait_ms": 0}).session(t).SessionID
	must(t, n.cmd.Process.Kill())
	b.ended(id, session.AgentExited)
	awaitGone(t, n.pid)
	b.noCards()
}

// TestB1_DeathIsNotAChange: requests that are looked at while their process is
// on its way out do not make it one that has changed.
func TestB1_DeathIsNotAChange(t *testing.T) {
	b, _ := demoBroker(t)
	for range 4 {
		c := player("flood", b.Home)
		out, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		lines := bufio.NewReader(out)
		first, err := lines.ReadString('\n')
		must(t, err)
		if second, _ := lines.ReadString('\n'); second != "flooding\n" {
			t.Fatalf("it said %q", second)
		}
		must(t, c.Process.Kill())
		c.Wait()
		b.ended(strings.TrimSpace(strings.TrimPrefix(first, "session ")), session.AgentExited)
	}
}

// TestAttackStrangerOnThePipe: a process of the account that opens the pipe ends
// the session, and what it writes goes nowhere.
func TestAttackStrangerOnThePipe(t *testing.T) {
	b, up := demoBroker(t)
	for _, fd := range []int{0, 1} {
		h := b.startShim().ready()
		id := h.grant("http:demo.write")
		pipe := fmt.Sprintf("/proc/%d/fd/0", h.cmd.Process.Pid)
		if fd == 1 { // yett-mcp has moved its own; the agent's end leads to the same pipe
			pipe = fmt.Sprintf("/proc/self/fd/%d", fdOf(t, h.out))
			pipe = strings.Replace(pipe, "self", fmt.Sprint(os.Getpid()), 1)
		}
		c := player("open", pipe, toolCall("evil", "http_request", postX))
		out, err := c.Output()
		if !strings.Contains(string(out), "opened") {
			t.Fatalf("fd %d: the stranger could not open %s: %v", fd, pipe, err)
		}
		if fd == 0 {
			if code := h.gone(); code == 0 {
				t.Error("exit 0")
			}
		} else { // the stranger's line is on our side: that it stands there is no fault of yett-mcp
			<-h.exited
		}
		b.ended(id, session.ShimExited, session.ChannelClosed)
		h.complains("opened")
	}
	if seen := up.Seen(); len(seen) != 0 {
		t.Errorf("the upstream saw %v", seen)
	}
}

func fdOf(t testing.TB, f *os.File) (fd int) {
	t.Helper()
	raw, err := f.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(n uintptr) { fd = int(n) }))
	return fd
}

// TestAttackStrangerOnTheSocket: a child that inherited the agent's end.
func TestAttackStrangerOnTheSocket(t *testing.T) {
	b, up := demoBroker(t)
	h := b.host(exec.Command(Bin("yett-mcp"), "--home", b.Home), nil)
	h.onSocket = true
	h.start().ready()
	id := h.grant("http:demo.write")
	c := player("write", toolCall("evil", "http_request", postX))
	c.ExtraFiles = []*os.File{h.in}
	play(t, c)
	if code := h.gone(); code == 0 {
		t.Error("exit 0")
	}
	b.ended(id, session.ShimExited, session.ChannelClosed)
	if seen := up.Seen(); len(seen) != 0 {
		t.Errorf("the upstream saw %v", seen)
	}
}

// TestM11_FiftyRounds: however an agent and its yett-mcp end, nothing of them
// is left.
func TestM11_FiftyRounds(t *testing.T) {
	b, _ := demoBroker(t)
	before := len(b.Sessions())
	const rounds = 50
	var mu sync.Mutex
	var ids []string
	var pids []int
	slots := make(chan struct{}, 4)
	var all sync.WaitGroup
	for i := range rounds {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			id, pid := round(b, i)
			mu.Lock()
			defer mu.Unlock()
			ids, pids = append(ids, id), append(pids, pid)
		})
	}
	all.Wait()
	for _, pid := range pids {
		awaitGone(t, pid)
	}
	for _, id := range ids {
		b.untilSession(id, func(s wire.Session) bool { return s.State == "ended" })
	}
	if n := len(b.Sessions()) - before; n != rounds {
		t.Errorf("%d sessions, want %d", n, rounds)
	}
	if left := processesOf(b.Home); len(left) != 1 { // the broker
		t.Errorf("left: %q", left)
	}
	b.noCards()
}

// round lets an agent start yett-mcp, ask, and end in one of five ways.
func round(b *Broker, i int) (sessionID string, shim int) {
	way := i % 5
	var h *host
	if way < 2 {
		h = b.startAgent("pipe", "grandchild")
	} else {
		h = b.startShim()
	}
	h.ready()
	id := h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":0}`).session(h.t).SessionID
	shim = h.cmd.Process.Pid
	switch way {
	case 0: // SIGKILL of the agent, the pipe stays open in a grandchild
		shim = h.shim()
		h.cmd.Process.Kill()
	case 1: // the same, to yett-mcp
		shim = h.shim()
		syscall.Kill(shim, syscall.SIGKILL)
	case 2: // the end of standard input
		h.in.Close()
	case 3: // nobody reads any more
		h.out.Close()
		h.pingUntilGone()
	case 4:
		h.cmd.Process.Signal(syscall.SIGTERM)
	}
	h.gone()
	return id, shim
}

// pingUntilGone makes yett-mcp write. One ping may find a reader still: a child
// that another goroutine is starting holds all descriptors until its exec.
func (h *host) pingUntilGone() {
	for i := 0; ; i++ {
		h.in.WriteString(request(i, "ping", "{}") + "\n")
		select {
		case <-h.exited:
			return
		case <-time.After(5 * time.Millisecond):
		}
		if i > 2000 {
			return // gone() complains
		}
	}
}

// processesOf lists the live processes that were started with a home.
func processesOf(home string) (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		if line, err := os.ReadFile(p); err == nil && strings.Contains(string(line), home) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// TestA3_TwoAgents: two sessions, two cards; one is revoked, the other works.
func TestA3_TwoAgents(t *testing.T) {
	b, up := demoBroker(t)
	one, two := b.startAgent().ready(), b.startAgent("socket").ready()
	const ask, get = `{"capabilities":["http:demo.read"],"wait_ms":0}`, `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`
	a, z := one.call("request_access", ask), two.call("request_access", ask)
	if len(b.Pending()) != 2 || a.session(t).SessionID == z.session(t).SessionID || a.tag(t) == z.tag(t) {
		t.Fatalf("not two cards of two sessions:\n%s\n%s", a.text, z.text)
	}
	b.ApproveTag(a.session(t).Pending.ApprovalID, a.tag(t))
	one.call("http_request", get).wants(t, "completed: ")
	two.call("http_request", get).refused(t, "capability_not_granted")
	b.ApproveTag(z.session(t).Pending.ApprovalID, z.tag(t))
	two.call("http_request", get).wants(t, "completed: ")

	if r := b.RunPlain("revoke", a.session(t).SessionID); r.Code != 0 {
		t.Fatalf("revoke: %d %s", r.Code, r.Stderr)
	}
	one.call("http_request", get).refused(t, "session_ended", session.Revoked)
	two.call("http_request", get).wants(t, "completed: ")
	one.call("http_request", get).refused(t, "capability_not_granted").wants(t, "This is a new session")
	b.ended(a.session(t).SessionID, session.Revoked)
	if n := len(up.Seen()); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}
