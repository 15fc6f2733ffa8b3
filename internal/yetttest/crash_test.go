package yetttest

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// readX is an action that may be repeated.
var readX = map[string]any{"method": "GET", "path": "/v1/x"}

// hangs is an upstream that counts and holds every POST to /v1/hang until the
// test ends.
func hangs(t *testing.T) (up *Upstream, arrived chan string) {
	arrived = make(chan string, 16)
	held := make(chan struct{})
	up = StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/hang" {
			arrived <- r.Method
			<-held
		}
		w.Write([]byte("done"))
	})
	t.Cleanup(func() { close(held) }) // before the server's own cleanup, which waits for handlers
	return up, arrived
}

// TestA06_KilledBetweenIntentAndOutcome: what was executing reads as
// indeterminate after a crash, the same request is not executed again, and a
// different one is.
func TestA06_KilledBetweenIntentAndOutcome(t *testing.T) {
	up, arrived := hangs(t)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.write")
	post := map[string]any{"method": "POST", "path": "/v1/hang", "body": "one"}
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": post}), &op)
	if op.State != "executing" {
		t.Fatalf("with wait_ms 0: %+v", op)
	}
	<-arrived
	b.Kill()
	b.Serve()
	if r := b.RunPlain("audit", "verify", "--json"); r.Code != 0 { // recovery ran while locked
		t.Fatalf("audit: %s%s", r.Stdout, r.Stderr)
	}
	b.Must("unlock")

	c = b.Granted("http:demo.write")
	var again Operation
	c.Must(wire.MethodOperationGet, c.Next(map[string]any{"operation_id": op.OperationID}), &again)
	if again.State != "indeterminate" || again.Reason == nil || again.Reason.NextStep == "" {
		t.Fatalf("after the crash: %+v", again)
	}
	r := c.Act("http:demo.write", post)
	if r.Code() != wire.CodeOutcomeUnknown || r.Error.Data["operation_id"] != op.OperationID {
		t.Fatalf("the same request: %q %v", r.Code(), r.Error)
	}
	if got := c.MustAct("http:demo.write", map[string]any{"method": "POST", "path": "/v1/other", "body": "one"}); got.State != "completed" {
		t.Fatalf("a different request: %+v", got)
	}
	if seen := up.Seen(); len(seen) != 2 {
		t.Fatalf("upstream saw %v", seen)
	}
	recovered := false
	for _, row := range b.Activity() {
		if row.OperationID == op.OperationID && row.Kind == "recovered" {
			recovered = true
		}
		if row.OperationID == op.OperationID && row.Kind == "outcome" {
			t.Error("an outcome was invented")
		}
	}
	if !recovered {
		t.Error("the recovery left no row")
	}
}

// TestA06_ApprovedRepetitionRunsOnce: the error files a card that says so; once
// approved, the repeated request runs once and only once.
func TestA06_ApprovedRepetitionRunsOnce(t *testing.T) {
	up, arrived := hangs(t)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.write")
	post := map[string]any{"method": "POST", "path": "/v1/hang"}
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": post}), nil)
	<-arrived
	b.Restart()
	c = b.Granted("http:demo.write")
	if r := c.Act("http:demo.write", post); r.Code() != wire.CodeOutcomeUnknown {
		t.Fatalf("%q", r.Code())
	}
	b.Approve(b.WaitCard())
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": post}), &op)
	if op.State != "executing" {
		t.Fatalf("after approval: %+v", op)
	}
	<-arrived
	r := c.Call(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": post}))
	if r.Code() != wire.CodeOutcomeUnknown || r.Error.Data["operation_id"] != op.OperationID {
		t.Fatalf("while it runs: %q", r.Code())
	}
	if seen := up.Seen(); len(seen) != 2 {
		t.Fatalf("upstream saw %v", seen)
	}
}

// TestQueuedIsDeniedAfterRestart: what waited for a person is void.
func TestQueuedIsDeniedAfterRestart(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.each")
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.each",
		"action": map[string]any{"method": "POST", "path": "/each/x"}}), &op)
	if op.State != "queued" || op.Pending == nil {
		t.Fatalf("%+v", op)
	}
	b.Restart()
	c = b.Open()
	c.OpenSession()
	var again Operation
	c.Must(wire.MethodOperationGet, c.Next(map[string]any{"operation_id": op.OperationID}), &again)
	if again.State != "denied" || again.Reason.Code != wire.ReasonBrokerRestarted || len(up.Seen()) != 0 {
		t.Fatalf("%+v", again)
	}
}

// TestEachActionAsked: with confirm = "each" the action waits for its own card,
// and a decision that comes after the call returned runs nothing by itself.
func TestEachActionAsked(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.each")
	ask := map[string]any{"capability": "http:demo.each", "action": map[string]any{"method": "POST", "path": "/each/x", "body": "hello"}}
	var op, same Operation
	c.Must(wire.MethodActionRequest, c.Next(ask), &op)
	c.Must(wire.MethodActionRequest, c.Next(ask), &same)
	if op.State != "queued" || same.OperationID != op.OperationID {
		t.Fatalf("%+v then %+v", op, same)
	}
	card := b.WaitCard()
	var shown struct {
		Tag     string
		Request struct{ Method, Path, Body string }
	}
	json.Unmarshal(card.Card, &shown)
	if shown.Request.Method != "POST" || shown.Request.Path != "/each/x" || shown.Request.Body != "hello" || shown.Tag != op.Pending.Tag {
		t.Fatalf("the card shows %+v, the agent's tag is %q", shown, op.Pending.Tag)
	}
	b.Approve(card)
	if len(up.Seen()) != 0 {
		t.Fatal("the decision ran the action by itself")
	}
	c.Must(wire.MethodOperationGet, c.Next(map[string]any{"operation_id": op.OperationID, "wait_ms": 30_000}), &op)
	if op.State != "completed" || len(up.Seen()) != 1 {
		t.Fatalf("%+v, upstream saw %v", op, up.Seen())
	}
	c.Must(wire.MethodActionRequest, c.Next(ask), &same)
	if same.State != "queued" || same.OperationID == op.OperationID {
		t.Fatalf("the next equal request: %+v", same)
	}
}
