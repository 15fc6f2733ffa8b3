package console_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// follower is yett pending --follow --json.
type follower struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// follow follows the queue in a terminal's place.
func (s *site) follow(t *testing.T) *follower {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w, yetttest.Passphrase)
	w.Close()
	f := &follower{t: t, cmd: exec.Command(yetttest.Bin("yett"), "pending", "--follow", "--json", "--passphrase-fd", "3", "--home", s.Home)}
	f.cmd.ExtraFiles = []*os.File{r}
	f.cmd.Stderr = os.Stderr
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	f.lines = bufio.NewScanner(out)
	f.lines.Buffer(nil, 1<<20)
	t.Cleanup(func() { f.cmd.Process.Kill(); f.cmd.Wait() })
	return f
}

func (f *follower) next() (event struct {
	Waits wire.Approval
	Gone  string
}) {
	f.t.Helper()
	limit := time.AfterFunc(yetttest.Patience, func() { f.cmd.Process.Kill() })
	defer limit.Stop()
	if !f.lines.Scan() {
		f.t.Fatal("the follower ended")
	}
	if err := json.Unmarshal(f.lines.Bytes(), &event); err != nil {
		f.t.Fatal(err)
	}
	return event
}

// TestPendingFollow: the queue in a terminal, as it changes.
func TestPendingFollow(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	f := s.follow(t)
	agent := s.Open()
	agent.OpenSession("http:billing.read")
	came := f.next().Waits
	if came.ApprovalID != agent.Session.Pending.ApprovalID || came.CardDigest == "" || came.Card == nil {
		t.Errorf("what came: %+v", came)
	}
	if r := s.RunPlain("deny", came.ApprovalID); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if gone := f.next().Gone; gone != came.ApprovalID {
		t.Errorf("gone: %q", gone)
	}
	if r := s.RunPlain("pending", "--follow", came.ApprovalID); r.Code != 2 {
		t.Errorf("with an id: exit %d", r.Code)
	}
}

// TestP10_NobodyCanBeAsked: where the broker is told to want an approver, an
// agent learns within a second that there is none, for a session and for an
// action, and is asked for as soon as somebody looks.
func TestP10_NobodyCanBeAsked(t *testing.T) {
	t.Parallel()
	s := &site{Broker: yetttest.New(t), t: t, port: freePort(t)}
	s.ServeArgs = []string{"--no-console", "--require-approver"}
	s.Serve()
	s.Unlock()
	s.Apply(teamAccess)
	agent := s.Open()
	began := time.Now()
	agent.OpenSession("http:billing.read")
	if r := agent.Session.Reason; r == nil || r.Code != wire.ReasonNoApprover || agent.Session.Pending != nil {
		t.Errorf("without anybody: %+v", agent.Session)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	f := s.follow(t)
	var now wire.SessionResult
	for deadline := time.Now().Add(yetttest.Patience); now.Pending == nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		agent.Must(wire.MethodAccessRequest, agent.Next(map[string]any{"capabilities": []string{"http:billing.refund"}}), &now)
	}
	if now.Pending == nil || f.next().Waits.ApprovalID != now.Pending.ApprovalID {
		t.Fatalf("with a follower: %+v", now)
	}
	s.Approve(s.WaitCard(), "--for", "1h")
	f.cmd.Process.Kill()
	f.cmd.Wait()
	var op yetttest.Operation
	for n := 0; op.Reason == nil || op.Reason.Code == wire.ReasonDenied; n++ { // the last look of the follower counts for a moment
		if n == 300 {
			t.Fatalf("cards are still filed: %+v", op)
		}
		op = yetttest.Operation{}
		agent.Must(wire.MethodActionRequest, agent.Next(map[string]any{"capability": "http:billing.refund", "wait_ms": 0,
			"action": map[string]any{"method": "POST", "path": "/v1/refunds", "body": fmt.Sprint(n)}}), &op)
		if op.Pending != nil {
			s.RunPlain("deny", op.Pending.ApprovalID)
			time.Sleep(100 * time.Millisecond)
		}
	}
	if op.Reason == nil || op.Reason.Code != wire.ReasonNoApprover {
		t.Errorf("an action after the follower has gone: %+v", op)
	}
}
