//go:build linux

package shim

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

const doGet = `{"capability":"http:a","method":"GET","path":"/v1"}`

func pending() *wire.Pending {
	url := "http://127.0.0.1:9/card"
	return &wire.Pending{ApprovalID: "a_77", ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), ConsoleURL: &url, Tag: "amber otter"}
}

func operation(state string, result any, reason *wire.Reason, p *wire.Pending) wire.OperationResult {
	b, err := json.Marshal(map[string]any{"state": state})
	if err != nil {
		panic(err)
	}
	r := wire.OperationResult{OperationID: "o_42", Sequence: 1, Result: result, Reason: reason, Pending: p, Activity: "activity:7"}
	if err := json.Unmarshal(b, &r); err != nil {
		panic(err)
	}
	return r
}

func waitOfRequest(t *testing.T, a asked) int64 {
	t.Helper()
	var p struct {
		WaitMS int64 `json:"wait_ms"`
	}
	must(t, json.Unmarshal(a.Params, &p))
	return p.WaitMS
}

func TestM03_QueuedThenGetOperation(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(a asked) any {
		if a.Method == wire.MethodActionRequest {
			return operation("queued", nil, nil, pending())
		}
		return operation("completed", wire.HTTPResult{Status: 200, Headers: map[string]string{}, BodyRef: "activity:7", Size: 0}, nil, nil)
	}))
	h := startShim(t, "--home", home).ready()
	said, isError := h.call("http_request", doGet)
	if isError {
		t.Errorf("queued is an error: %s", said)
	}
	wants(t, said, "queued: operation o_42", "nothing was executed", `"amber otter"`, "yett approve a_77", "http://127.0.0.1:9/card", "2030-01-02 03:04:05 UTC",
		`get_operation with operation_id "o_42"`, "Do not repeat")
	for _, tool := range []string{wire.MethodActionRequest} {
		if ms := waitOfRequest(t, b.awaitRequest(tool, 1)); ms != defaultWaitMS || ms > 50_000 {
			t.Errorf("%s waits %d ms", tool, ms)
		}
	}
	said, isError = h.call("get_operation", `{"operation_id":"o_42","wait_ms":50000}`)
	if isError {
		t.Error(said)
	}
	wants(t, said, "completed: HTTP 200 OK", "body: empty")
	if ms := waitOfRequest(t, b.awaitRequest(wire.MethodOperationGet, 1)); ms != 50_000 {
		t.Errorf("operation.get waits %d ms", ms)
	}
}

func TestM03_NoCallIsHeldLonger(t *testing.T) {
	if defaultWaitMS > 50_000 || wire.MaxWaitMS > 50_000 || replyMargin > 9*time.Second {
		t.Errorf("default %d, most %d, margin %v: a host gives up at 60 s", defaultWaitMS, wire.MaxWaitMS, replyMargin)
	}
}

func TestM03_RequestAccessGoesOnWaiting(t *testing.T) {
	home := testHome(t)
	state := func(p *wire.Pending, caps ...string) wire.SessionResult {
		return wire.SessionResult{SessionID: "s_1", State: "active", Capabilities: append([]string{}, caps...), Pending: p}
	}
	b := startBroker(t, home, ordinary(func(a asked) any {
		if a.Method == wire.MethodAccessRequest {
			return state(pending())
		}
		return state(nil, "http:a", "http:b")
	}))
	h := startShim(t, "--home", home).ready()
	said, isError := h.call("request_access", `{"capabilities":["http:b","http:a"],"purpose":"x"}`)
	if isError {
		t.Error(said)
	}
	wants(t, said, "pending: a person must decide on http:b, http:a", `"amber otter"`, "call request_access again")
	said, isError = h.call("request_access", `{"capabilities":["http:a","http:b"]}`)
	if isError {
		t.Error(said)
	}
	wants(t, said, "granted: http:a, http:b")
	if n := len(b.requests(wire.MethodAccessRequest)); n != 1 {
		t.Errorf("%d cards were asked for", n)
	}
	// It was decided: the next request is a new one.
	h.call("request_access", `{"capabilities":["http:a","http:b"]}`)
	if n := len(b.requests(wire.MethodAccessRequest)); n != 2 {
		t.Errorf("%d cards were asked for after the decision", n)
	}
}

func TestM18_AWaitingCallBlocksNothing(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(a asked) any {
		if a.Method == wire.MethodActionRequest {
			return silence
		}
		return wire.AccessListResult{Capabilities: []wire.Access{}}
	}))
	h := startShim(t, "--home", home).ready()
	h.send(toolCall("slow", "http_request", doGet))
	slow := b.awaitRequest(wire.MethodActionRequest, 1)
	h.send(request("list", "tools/list", "{}"))
	if r := h.await(`"list"`); len(r.Result.Tools) != len(tools()) {
		t.Errorf("tools/list: %+v", r)
	}
	if said, isError := h.call("list_access", "{}"); isError {
		t.Error(said)
	}
	var took []time.Duration
	for i := range 200 {
		began := time.Now()
		h.send(request(i, "ping", "{}"))
		h.await(strconv.Itoa(i))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	if median := took[100]; median > 100*time.Millisecond {
		t.Errorf("ping takes %v", median)
	}
	b.reply(slow, operation("denied", nil, wire.NewReason(wire.ReasonDenied, ""), nil))
	if r := h.await(`"slow"`); !r.Result.IsError {
		t.Errorf("the slow call: %+v", r)
	}
}

func TestM18_CallsInFlightAreBounded(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return silence }))
	h := startShim(t, "--home", home).ready()
	for i := range maxCalls {
		h.send(toolCall(i, "http_request", doGet))
	}
	b.awaitRequest(wire.MethodActionRequest, maxCalls)
	h.send(toolCall("more", "http_request", doGet))
	if r := h.await(`"more"`); r.Error == nil || r.Error.Data.Code != "busy" || r.Error.Data.NextStep == "" {
		t.Errorf("call %d: %+v", maxCalls+1, r)
	}
	h.send(request("ping", "ping", "{}"))
	if r := h.await(`"ping"`); r.Error != nil {
		t.Errorf("ping: %+v", r.Error)
	}
	a := b.awaitRequest(wire.MethodActionRequest, 1)
	b.reply(a, operation("denied", nil, nil, nil))
	deadline := time.Now().Add(patience)
	for { // whichever call that was, one place is free now
		h.mu.Lock()
		n := len(h.replies)
		h.mu.Unlock()
		if n > 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	h.send(toolCall("again", "http_request", doGet))
	b.awaitRequest(wire.MethodActionRequest, maxCalls+1)
}

// Numbers arrive in order however many calls there are at once.
func TestM18_SequenceNumbersArriveInOrder(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return wire.AccessListResult{Capabilities: []wire.Access{}} }))
	h := startShim(t, "--home", home).ready()
	const calls = 60
	for i := range calls {
		h.send(toolCall(i, "list_access", "{}"))
	}
	for i := range calls {
		h.await(strconv.Itoa(i))
	}
	for i, a := range b.requests(wire.MethodAccessList) {
		var p wire.Envelope
		must(t, json.Unmarshal(a.Params, &p))
		if p.Sequence != int64(i+1) || p.SessionID != "s_1" {
			t.Fatalf("request %d has number %d of %s", i+1, p.Sequence, p.SessionID)
		}
	}
	if n := len(b.requests(wire.MethodHello)); n != 1 {
		t.Errorf("%d channels", n)
	}
}

func TestM04_AnActionIsNeverSentTwice(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(a asked) any {
		if a.Method == wire.MethodActionRequest {
			return hangUp
		}
		return wire.AccessListResult{Capabilities: []wire.Access{}}
	}))
	h := startShim(t, "--home", home).ready()
	said, isError := h.call("http_request", `{"capability":"http:a","method":"POST","path":"/v1","body":"x"}`)
	if !isError {
		t.Error(said)
	}
	wants(t, said, "outcome_unknown: ", "may or may not have been executed", "Do not simply repeat")
	said, _ = h.call("http_request", strings.Replace(doGet, "GET", "get", 1))
	wants(t, said, "outcome_unknown: ", "repeating this method is allowed")
	lacks(t, said, "Do not")
	said, _ = h.call("list_access", "{}")
	wants(t, said, "This is a new session with Yett: the channel of the one before ended")
	if n := len(b.requests(wire.MethodActionRequest)); n != 2 { // the POST, and the GET
		t.Errorf("%d actions were sent", n)
	}
}

func TestM04_TheCardOfARepetitionIsShown(t *testing.T) {
	home := testHome(t)
	answers := make(chan *wire.Error, 2)
	startBroker(t, home, ordinary(func(asked) any { return <-answers }))
	h := startShim(t, "--home", home).ready()
	answers <- wire.NewError(wire.CodeOutcomeUnknown).With("operation_id", "o_42").With("pending", pending())
	said, _ := h.call("http_request", doGet)
	wants(t, said, "outcome_unknown: ", "operation o_42", `"amber otter"`, "yett approve a_77", "2030-01-02 03:04:05 UTC",
		"Once a person has approved it, make the same call again: it then runs once.")
	answers <- wire.NewError(wire.CodeOutcomeUnknown).With("pending", "not a card")
	said, _ = h.call("http_request", doGet)
	wants(t, said, "outcome_unknown: ", "Nothing was executed now.")
	lacks(t, said, "card", "same call")
}

func TestNamesStandOnce(t *testing.T) {
	home := testHome(t)
	startBroker(t, home, ordinary(func(a asked) any {
		if a.Method == wire.MethodAccessList {
			return wire.AccessListResult{Capabilities: []wire.Access{{Capability: "http:a"}}}
		}
		return wire.SessionResult{State: "active", Capabilities: []string{}, Pending: pending()}
	}))
	h := startShim(t, "--home", home).ready()
	said, _ := h.call("request_access", `{"capabilities":["http:a","http:b","http:a"]}`)
	wants(t, said, "must decide on http:a, http:b. Nothing")
	said, _ = h.call("list_access", "{}")
	wants(t, said, "1 capability can be asked for")
}

func TestSessionEndedIsSaidAndReplaced(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(a asked) any {
		if a.Conn == 1 {
			return wire.NewError(wire.CodeSessionEnded).With("end_reason", "revoked")
		}
		return wire.AccessListResult{Capabilities: []wire.Access{}}
	}))
	h := startShim(t, "--home", home).ready()
	said, isError := h.call("http_request", doGet)
	if !isError {
		t.Error(said)
	}
	wants(t, said, "session_ended: ", "(revoked)", "request_access")
	b.awaitClosed(1)
	said, isError = h.call("list_access", "{}")
	if isError {
		t.Error(said)
	}
	wants(t, said, "This is a new session with Yett: the one before has ended (revoked).")
	if open := b.requests(wire.MethodSessionOpen); len(open) != 2 || !strings.Contains(string(open[1].Params), `"n_2"`) {
		t.Errorf("sessions: %+v", open)
	}
}

func TestPausedSessionIsKept(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return wire.NewError(wire.CodeLocked) }))
	h := startShim(t, "--home", home).ready()
	for range 2 {
		if said, isError := h.call("list_access", "{}"); !isError || !strings.Contains(said, "locked: ") {
			t.Error(said)
		}
	}
	if n := len(b.requests(wire.MethodSessionOpen)); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestCancelStopsWaitingOnly(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(a asked) any {
		if a.Method == wire.MethodActionRequest {
			return silence
		}
		return operation("executing", nil, nil, nil)
	}))
	h := startShim(t, "--home", home).ready()
	h.send(toolCall(5, "http_request", doGet))
	b.awaitRequest(wire.MethodActionRequest, 1)
	h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	h.await("5") // the wait has ended
	said, isError := h.call("get_operation", `{"operation_id":"o_42"}`)
	if isError {
		t.Error(said)
	}
	wants(t, said, "executing: operation o_42")
	if n := len(b.requests(wire.MethodHello)); n != 1 {
		t.Errorf("%d channels: the session did not outlive the cancel", n)
	}
}

func TestHelloSaysWhoAndHow(t *testing.T) {
	list := ordinary(func(asked) any { return wire.AccessListResult{Capabilities: []wire.Access{}} })
	hello := func(b *fakeBroker) wire.Hello {
		var p wire.Hello
		must(t, json.Unmarshal(b.awaitRequest(wire.MethodHello, 1).Params, &p))
		return p
	}
	home := testHome(t)
	b := startBroker(t, home, list)
	h := startShim(t, "--home", home).ready()
	h.call("list_access", "{}")
	p := hello(b)
	want := map[string]string{"client_name": "agent", "client_version": "7", "stdio": "pipe", "guard": "inotify"}
	if p.Role != "shim" || p.Program != "yett-mcp" || p.Version == "" || fmt.Sprint(p.Labels) != fmt.Sprint(want) {
		t.Errorf("hello: %+v", p)
	}
	if open := b.awaitRequest(wire.MethodSessionOpen, 1); open.Files != 0 || !strings.Contains(string(open.Params), `"capabilities":[]`) {
		t.Errorf("session.open: %+v", open)
	}

	// Over a socket the broker gets the descriptor, with session.open only.
	home = testHome(t)
	b = startBroker(t, home, list)
	ours, theirs := socketPair(t)
	h = startHost(t, exec.Command(shimPath(), "--home", home), theirs)
	h.in = ours
	h.send(request(1, "tools/call", `{"name":"list_access","arguments":{},`+modernMeta+`}`))
	if r := h.await("1"); r.Error != nil { // written before the guard was set
		h.send(request(2, "tools/call", `{"name":"list_access","arguments":{},`+modernMeta+`}`))
		h.await("2")
	}
	p = hello(b)
	if p.Labels["stdio"] != "socket" || p.Labels["guard"] != "sender" || p.Labels["client_name"] != "agent" {
		t.Errorf("hello over a socket: %+v", p)
	}
	if n := b.awaitRequest(wire.MethodHello, 1).Files; n != 0 {
		t.Errorf("hello carries %d descriptors", n)
	}
	if n := b.awaitRequest(wire.MethodSessionOpen, 1).Files; n != 1 {
		t.Errorf("session.open carries %d descriptors", n)
	}
}

func TestTooLargeForTheSocket(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return wire.AccessListResult{Capabilities: []wire.Access{}} }))
	h := startShim(t, "--home", home).ready()
	said, isError := h.call("http_request", `{"capability":"http:a","method":"POST","path":"/","body":"`+strings.Repeat("x", 1<<20)+`"}`)
	if !isError {
		t.Error(said)
	}
	wants(t, said, "frame_too_large: ", "Nothing was executed")
	h.call("list_access", "{}")
	var p wire.Envelope
	must(t, json.Unmarshal(b.awaitRequest(wire.MethodAccessList, 1).Params, &p))
	if p.Sequence != 1 {
		t.Errorf("the request that was never sent used up a number: %d", p.Sequence)
	}
}
