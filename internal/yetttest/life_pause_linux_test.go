package yetttest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// unlockedJSON is what yett unlock --json prints.
type unlockedJSON struct {
	State string `json:"state"`
	wire.Unlocked
}

func (b *Broker) status() (st wire.Status) {
	b.T.Helper()
	b.manage(wire.MethodBrokerStatus, wire.Empty{}, nil, nil, &st)
	return st
}

// TestPausedSessionsAreResumedByProof: those whose process, channel and end
// stand, with their original end; a person sees which.
func TestPausedSessionsAreResumedByProof(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	gone, closed := b.live("agent"), b.live("agent")
	goneID, closedID := gone.word("session"), closed.word("session")
	b.RunPlain("lock", "--pause")

	if st := b.status(); st.State != "locked" || st.Sessions != 3 || st.Paused != 3 {
		t.Errorf("status: %+v", st)
	}
	if text := b.RunPlain("status").Stdout; !strings.Contains(text, "3 sessions (3 paused)") {
		t.Errorf("status says %s", text)
	}
	for _, call := range []func() Reply{
		func() Reply { return c.Act("http:demo.read", readX) },
		func() Reply { return c.Call(wire.MethodAccessList, c.Next(nil)) },
		func() Reply { return c.Call(wire.MethodSessionClose, c.Next(nil)) },
	} {
		if r := call(); r.Code() != wire.CodeLocked {
			t.Errorf("a paused session answers %s %s", r.Code(), r.Result)
		}
	}
	gone.kill()
	closed.tell("close")
	closed.word("done")
	for b.status().Sessions > 1 { // their ends are ends while paused too
		time.Sleep(5 * time.Millisecond)
	}
	if r := b.RunWith("", "not the passphrase", "unlock"); r.Code != 3 || b.status().Paused != 1 {
		t.Errorf("a wrong passphrase: exit %d, %+v", r.Code, b.status())
	}

	r := b.Must("unlock", "--json")
	var u unlockedJSON
	r.JSON(t, &u)
	if u.State != "ready" || len(u.Resumed) != 1 || u.Resumed[0].SessionID != c.Session.SessionID || u.Resumed[0].PID != os.Getpid() {
		t.Errorf("unlock says %s", r.Stdout)
	}
	if op := c.MustAct("http:demo.read", readX); op.State != "completed" {
		t.Errorf("after it was resumed: %+v", op)
	}
	s := b.untilSession(c.Session.SessionID, func(s wire.Session) bool { return s.State == "active" })
	if !s.ExpiresAt.Equal(c.Session.ExpiresAt) {
		t.Errorf("the end moved from %v to %v", c.Session.ExpiresAt, s.ExpiresAt)
	}
	b.ended(goneID, session.AgentExited)
	b.ended(closedID, session.ChannelClosed)
	if len(up.Seen()) != 1 {
		t.Errorf("the upstream saw %v", up.Seen())
	}
	var kinds []string
	for _, row := range b.Activity() {
		if row.SessionID == c.Session.SessionID {
			kinds = append(kinds, row.Kind)
		}
	}
	if p, q := slices.Index(kinds, "session.paused"), slices.Index(kinds, "session.resumed"); p < 0 || q < p {
		t.Errorf("rows of the session: %v", kinds)
	}
}

// TestPausedListIsOpenToNobody: before the proof nobody reads whose the paused
// sessions are; after it the person does.
func TestPausedListIsOpenToNobody(t *testing.T) {
	b, _ := demoBroker(t)
	p := b.live("agent")
	id := p.word("session")
	b.RunPlain("lock", "--pause")
	var l wire.List[map[string]any]
	b.manage(wire.MethodSessionPaused, wire.Empty{}, nil, nil, &l)
	if len(l.Items) != 1 || l.Items[0]["session_id"] != id {
		t.Fatalf("listed: %v", l.Items)
	}
	for name := range l.Items[0] {
		if !slices.Contains([]string{"session_id", "capabilities", "expires_at"}, name) {
			t.Errorf("it says %s without a proof", name)
		}
	}
	r := b.Must("unlock")
	if !strings.Contains(r.Stderr, id) || !strings.Contains(r.Stdout, "resumed "+id) {
		t.Errorf("unlock says %q and %q", r.Stderr, r.Stdout)
	}
}

// TestLockEndsPausedSessions: nothing is left to resume.
func TestLockEndsPausedSessions(t *testing.T) {
	b, _ := demoBroker(t)
	c := b.Granted("http:demo.read")
	b.RunPlain("lock", "--pause")
	b.RunPlain("lock")
	r := c.Call(wire.MethodAccessList, c.Next(nil))
	if r.Code() != wire.CodeSessionEnded || r.Error.Data["end_reason"] != session.Locked {
		t.Errorf("%s %v", r.Code(), r.Error)
	}
	var u unlockedJSON
	b.Must("unlock", "--json").JSON(t, &u)
	if len(u.Resumed)+len(u.Ended) != 0 {
		t.Errorf("resumed after lock: %+v", u)
	}
}

// TestLockAfterSilence: a vault that nobody uses locks by itself, and pauses;
// what asks for nothing does not keep it open.
func TestLockAfterSilence(t *testing.T) {
	up := StartUpstream(t, canary)
	b := New(t)
	b.ServeArgs = []string{"--lock-after", "1s"}
	b.Serve()
	b.Unlock()
	b.Apply(up.Access())
	b.SetSecret("demo", canary)
	c := b.Granted("http:demo.read")
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		r := c.Call(wire.MethodAccessList, c.Next(nil))
		if r.Code() == wire.CodeLocked {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("listing keeps the vault open")
		}
	}
	for b.status().Paused != 1 {
		time.Sleep(5 * time.Millisecond)
	}
	if r := c.Act("http:demo.read", readX); r.Code() != wire.CodeLocked {
		t.Errorf("locked, it answers %s", r.Code())
	}
	b.Unlock()
	if op := c.MustAct("http:demo.read", readX); op.State != "completed" {
		t.Errorf("%+v", op)
	}
}

// TestAWaitEndsWithThePause: whoever waits for a card is told.
func TestAWaitEndsWithThePause(t *testing.T) {
	b, _ := demoBroker(t)
	c := b.Open()
	c.OpenSession("http:demo.read")
	frame, err := wire.EncodeRequest(900, wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 50_000}))
	must(t, err)
	c.Write(frame)
	c.Must(wire.MethodAccessList, c.Next(nil), nil) // the wait has begun before this
	b.RunPlain("lock", "--pause")
	if r, ok := c.Read(); !ok || string(r.ID) != "900" || r.Code() != wire.CodeLocked {
		t.Fatalf("%v %s %s", ok, r.ID, r.Code())
	}
	b.Unlock()
	b.Approve(b.WaitCard(), "--for", "1h")
	c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), &c.Session)
	if c.Session.State != "active" || len(c.Session.Capabilities) != 1 {
		t.Errorf("after the pause: %+v", c.Session)
	}
}

// TestE6_NothingStaleRunsOnWaking: what was sent to a broker that stood still,
// or waited in a shim that did, is judged when it wakes.
func TestE6_NothingStaleRunsOnWaking(t *testing.T) {
	b, up := demoBroker(t)
	t.Run("the broker, beyond the session's end", func(t *testing.T) {
		c := b.Open()
		c.OpenSession("http:demo.read")
		b.Approve(b.WaitCard(), "--for", "2s")
		c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), &c.Session)
		standStill(t, b.PID())
		frame, err := wire.EncodeRequest(900, wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.read", "action": readX, "wait_ms": 20_000}))
		must(t, err)
		c.Write(frame)
		time.Sleep(time.Until(c.Session.ExpiresAt) + 50*time.Millisecond)
		must(t, syscall.Kill(b.PID(), syscall.SIGCONT))
		if r, ok := c.Read(); !ok || r.Code() != wire.CodeSessionEnded || r.Error.Data["end_reason"] != session.Expired {
			t.Errorf("%v %s %s", ok, r.Code(), r.Result)
		}
	})
	t.Run("the shim, beyond a pause", func(t *testing.T) {
		h := b.startShim().ready()
		id := h.grant("http:demo.write")
		standStill(t, h.cmd.Process.Pid)
		call := h.begin("http_request", postX)
		b.RunPlain("revoke", id)
		must(t, syscall.Kill(h.cmd.Process.Pid, syscall.SIGCONT))
		h.await(call)
	})
	t.Run("an agent that stands still holds up nobody", func(t *testing.T) {
		p := b.live("agent")
		id := p.word("session")
		standStill(t, p.cmd.Process.Pid)
		c := b.Granted("http:demo.read")
		if op := c.MustAct("http:demo.read", readX); op.State != "completed" {
			t.Errorf("%+v", op)
		}
		b.RunPlain("revoke", id)
		b.ended(id, session.Revoked)
		must(t, syscall.Kill(p.cmd.Process.Pid, syscall.SIGCONT))
	})
	if seen := up.Seen(); len(seen) != 1 {
		t.Errorf("the upstream saw %v", seen)
	}
}

// standStill stops a process and returns when it stands still.
func standStill(t testing.TB, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if processState(pid) == "T" {
			return
		}
	}
	t.Fatalf("process %d did not stop", pid)
}

func processState(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	return after[:min(1, len(after))]
}

// TestE6_AGrantThatEndedInTheQueue: an action that waited behind an equal one
// until its grant was over does not run, although its session goes on.
func TestE6_AGrantThatEndedInTheQueue(t *testing.T) {
	up, arrived, answer := heldUpstream(t)
	b := Start(t, up.Access(), "demo", canary)
	p := b.live("agent", "http:demo.write") // another process, whose action runs
	p.word("session")
	b.Approve(b.WaitCard(), "--for", "1h")
	p.tell("post /v1/held/equal")
	select {
	case <-arrived:
	case <-time.After(Patience):
		t.Fatal("nothing arrived")
	}
	c := b.Open()
	c.OpenSession()
	c.Must(wire.MethodAccessRequest, c.Next(map[string]any{"capabilities": []string{"http:demo.write"}}), nil)
	b.Approve(b.WaitCard(), "--for", "2s")
	c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), &c.Session)
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write",
		"action": map[string]any{"method": "POST", "path": "/v1/held/equal"}}), &op)
	if op.State != "queued" {
		t.Fatalf("%+v", op)
	}
	for granted := true; granted; time.Sleep(20 * time.Millisecond) {
		var l wire.AccessListResult
		c.Must(wire.MethodAccessList, c.Next(nil), &l)
		granted = slices.ContainsFunc(l.Capabilities, func(a wire.Access) bool { return a.Granted })
	}
	release(t, answer)
	c.Must(wire.MethodOperationGet, c.Next(map[string]any{"operation_id": op.OperationID, "wait_ms": 30_000}), &op)
	if op.State != "denied" || op.Reason == nil || op.Reason.Code != wire.ReasonCapabilityNotGranted {
		raw, _ := json.Marshal(op)
		t.Errorf("%s", raw)
	}
	if seen := up.Seen(); len(seen) != 1 {
		t.Errorf("the upstream saw %v", seen)
	}
}
