package yetttest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// TestB6_EachWatchEndsTheSessionByItself: the agent's process, the shim's and
// the channel are watched each on its own, and the reason says which it was.
func TestB6_EachWatchEndsTheSessionByItself(t *testing.T) {
	b, _ := demoBroker(t)
	t.Run("the channel, while the process lives", func(t *testing.T) {
		p := b.live("agent")
		id := p.word("session")
		p.tell("close")
		p.word("done")
		b.ended(id, session.ChannelClosed)
	})
	t.Run("the process, while another holds the channel", func(t *testing.T) {
		p := b.live("agent")
		id := p.word("session")
		p.tell("share")
		child, err := strconv.Atoi(p.word("child"))
		must(t, err)
		defer syscall.Kill(child, syscall.SIGKILL)
		p.kill()
		b.ended(id, session.AgentExited)
		if dead(child) {
			t.Error("nobody held the channel")
		}
	})
	t.Run("death wins over the channel's end", func(t *testing.T) {
		for range 5 {
			p := b.live("agent")
			id := p.word("session")
			p.tell("end")
			p.cmd.Wait()
			b.ended(id, session.AgentExited)
		}
	})
	t.Run("the shim, while its agent lives", func(t *testing.T) {
		h := b.startShim().ready() // its agent is this process
		id := h.grant("http:demo.read")
		must(t, h.cmd.Process.Kill())
		b.ended(id, session.ShimExited)
	})
	t.Run("the agent, while its shim is stopped", func(t *testing.T) {
		h := b.startAgent("pipe").ready()
		id, shim := h.grant("http:demo.read"), h.shim()
		must(t, syscall.Kill(shim, syscall.SIGSTOP))
		must(t, h.cmd.Process.Kill())
		b.ended(id, session.AgentExited)
		must(t, syscall.Kill(shim, syscall.SIGCONT))
		awaitGone(t, shim)
	})
}

// heldUpstream answers below /v1/held/ only when it is told to.
func heldUpstream(t testing.TB) (up *Upstream, arrived chan string, answer chan struct{}) {
	arrived, answer = make(chan string, 16), make(chan struct{})
	up = StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	return up, arrived, answer
}

// sendHeld sends an action and returns once it has arrived upstream.
func (c *Channel) sendHeld(arrived chan string, path string) Operation {
	c.b.T.Helper()
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write",
		"action": map[string]any{"method": "POST", "path": path}}), &op)
	select {
	case <-arrived:
	case <-time.After(Patience):
		c.b.T.Fatal("nothing arrived")
	}
	return op
}

// outcomeOf waits for the outcome that the ledger has of an operation.
func (b *Broker) outcomeOf(id string) (state string) {
	b.T.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, r := range b.Activity() {
			if r.OperationID == id && r.Kind == "outcome" {
				var o struct {
					State string `json:"state"`
				}
				must(b.T, json.Unmarshal(r.Outcome, &o))
				if o.State != "completed" {
					b.T.Logf("outcome: %s", r.Outcome)
				}
				return o.State
			}
		}
	}
	b.T.Fatalf("no outcome of %s", id)
	return ""
}

// TestE2_TheOutcomeOfWhatWasSentIsLearned: whatever ends the session, an answer
// that comes a moment later is the outcome.
func TestE2_TheOutcomeOfWhatWasSentIsLearned(t *testing.T) {
	up, arrived, answer := heldUpstream(t)
	b := Start(t, up.Access(), "demo", canary)
	for name, end := range map[string]func(*Channel){
		"revoked":        func(c *Channel) { b.RunPlain("revoke", c.Session.SessionID) },
		"channel closed": func(c *Channel) { c.Conn().Close() },
		"locked":         func(*Channel) { b.RunPlain("lock") },
		"paused":         func(*Channel) { b.RunPlain("lock", "--pause") },
	} {
		t.Run(name, func(t *testing.T) {
			c := b.Granted("http:demo.write")
			op := c.sendHeld(arrived, "/v1/held/"+strconv.Itoa(len(name)))
			end(c)
			noneActive(t, b)
			release(t, answer)
			b.Unlock()
			if state := b.outcomeOf(op.OperationID); state != "completed" {
				t.Errorf("the outcome is %s", state)
			}
			c.Conn().Close() // the one that was paused lives again
			noneActive(t, b)
		})
	}
}

// noneActive waits until every session has ended or is paused.
func noneActive(t testing.TB, b *Broker) {
	t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if st := b.status(); st.Sessions == st.Paused {
			return
		}
	}
	t.Fatal("a session goes on")
}

// release lets the upstream answer one request.
func release(t testing.TB, answer chan struct{}) {
	t.Helper()
	select {
	case answer <- struct{}{}:
	case <-time.After(Patience):
		t.Fatal("nobody waits for the answer any more")
	}
}

// TestE2_AStopWaitsAMoment: a stopping broker learns what is answered at once,
// and ends within five seconds where nothing is.
func TestE2_AStopWaitsAMoment(t *testing.T) {
	up, arrived, answer := heldUpstream(t)
	b := Start(t, up.Access(), "demo", canary)
	for _, answered := range []bool{true, false} {
		c := b.Granted("http:demo.write")
		op := c.sendHeld(arrived, "/v1/held/"+strconv.FormatBool(answered))
		begin := time.Now()
		must(t, b.cmd.Process.Signal(syscall.SIGTERM))
		for { // the session has ended when its channel is closed
			if _, ok := c.Read(); !ok {
				break
			}
		}
		want := "indeterminate"
		if answered {
			release(t, answer)
			want = "completed"
		}
		b.cmd.Wait()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		b.cmd = nil
		b.Serve()
		b.Unlock()
		if state := b.outcomeOf(op.OperationID); state != want {
			t.Errorf("answered %v: the outcome is %s", answered, state)
		}
	}
}
