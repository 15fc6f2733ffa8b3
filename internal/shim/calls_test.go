package shim

import (
	"encoding/base64"
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
	if r := h.await(`"list"`); len(r.Result.Tools) != 6 {
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
	said, _ = h.call("list_access", "{}")
	wants(t, said, "This is a new session with Yett: the channel of the one before ended")
	if n := len(b.requests(wire.MethodActionRequest)); n != 1 {
		t.Errorf("the action was sent %d times", n)
	}
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

func TestResults(t *testing.T) {
	status, three := 3, "text\nof three lines\n"
	bodies := map[string][]byte{"t": []byte(three), "bin": {0, 1, 2, 255}, "err": []byte("warning")}
	for _, c := range []struct {
		name    string
		result  wire.OperationResult
		isError bool
		wants   []string
		lacks   []string
	}{
		{"text", operation("completed", wire.HTTPResult{Status: 201, BodyRef: "t", Size: int64(len(three)), Redacted: 2}, nil, nil), false,
			[]string{"completed: HTTP 201 Created (operation o_42).", "2 echoes", "body (20 bytes of text):\n" + three, `"activity": "activity:7"`}, nil},
		{"binary", operation("completed", wire.HTTPResult{Status: 200, BodyRef: "bin", Size: 4}, nil, nil), false,
			[]string{`body: not text, 4 bytes; read_result with body_ref "bin"`}, nil},
		{"long", operation("completed", wire.HTTPResult{Status: 200, BodyRef: "long", Size: inlineBody + 1, Truncated: true}, nil, nil), false,
			[]string{"body: long, 65537 bytes", "cut off"}, nil},
		{"error status", operation("completed", wire.HTTPResult{Status: 404, BodyRef: "t", Size: int64(len(three))}, nil, nil), false, []string{"HTTP 404 Not Found"}, nil},
		{"withheld", operation("completed", wire.HTTPResult{Status: 200, Withheld: "it held the credential"}, nil, nil), false, []string{"withheld: it held"}, nil},
		{"ssh", operation("completed", wire.SSHResult{Exit: wire.SSHExit{Status: &status}, StdoutRef: "t", StdoutSize: 20, StderrRef: "err", StderrSize: 7}, nil, nil), false,
			[]string{"exit status 3", "stdout (20 bytes of text):\n" + three, "stderr (7 bytes of text):\nwarning"}, nil},
		{"ssh signal", operation("completed", wire.SSHResult{Exit: wire.SSHExit{Signal: "KILL"}}, nil, nil), false, []string{"ended by signal KILL", "stdout: empty"}, nil},
		{"ssh unknown", operation("completed", wire.SSHResult{Exit: wire.SSHExit{Unknown: true}}, nil, nil), false, []string{"exit status is unknown"}, nil},
		{"not sent", operation("completed", wire.NotSent{Error: "the connection was refused"}, nil, nil), true, []string{"not_sent: the connection was refused", "never left"}, nil},
		{"not granted", operation("denied", nil, wire.NewReason(wire.ReasonCapabilityNotGranted, ""), nil), true,
			[]string{"capability_not_granted: ", "call request_access with http:a", "was not executed", "Next step: "}, nil},
		{"outside", operation("denied", nil, wire.NewReason(wire.ReasonOutsideCapability, "Method PUT."), nil), true, []string{"action_outside_capability: ", "Method PUT."}, []string{"request_access"}},
		{"indeterminate", operation("indeterminate", nil, &wire.Reason{Code: "x", Message: "No answer came.", NextStep: "Look there."}, nil), true,
			[]string{"indeterminate: ", "may or may not", "Look there.", "Do not repeat"}, nil},
		{"strange state", operation("melted", nil, nil, nil), true, []string{"internal: ", `"melted"`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := testHome(t)
			startBroker(t, home, ordinary(func(a asked) any {
				if a.Method != wire.MethodOperationBody {
					return c.result
				}
				var p wire.OperationBody
				must(t, json.Unmarshal(a.Params, &p))
				b := bodies[p.BodyRef]
				return wire.OperationBodyResult{BytesBase64: b, Size: int64(len(b)), EOF: true}
			}))
			h := startShim(t, "--home", home).ready()
			said, isError := h.call("http_request", doGet)
			if isError != c.isError {
				t.Errorf("isError is %v", isError)
			}
			wants(t, said, append(c.wants, "[test broker under --home "+home+"]")...)
			lacks(t, said, c.lacks...)
		})
	}
}

func TestReadResult(t *testing.T) {
	body := []byte("äöü" + strings.Repeat("x", 10))
	binary := []byte{0xff, 0xfe, 0, 1}
	home := testHome(t)
	startBroker(t, home, ordinary(func(a asked) any {
		var p wire.OperationBody
		must(t, json.Unmarshal(a.Params, &p))
		b := body
		if p.BodyRef == "bin" {
			b = binary
		}
		end := min(p.Offset+p.Limit, int64(len(b)))
		return wire.OperationBodyResult{BytesBase64: b[p.Offset:end], Size: int64(len(b)), EOF: end == int64(len(b))}
	}))
	h := startShim(t, "--home", home).ready()
	said, _ := h.call("read_result", `{"body_ref":"t","limit":3}`) // ends inside ö
	wants(t, said, "t: bytes 0 to 2 of 16 as text. Next: read_result with offset 2.\nä")
	said, _ = h.call("read_result", `{"body_ref":"t","offset":2}`)
	wants(t, said, "t: bytes 2 to 16 of 16 as text, the end.\nöü")
	said, _ = h.call("read_result", `{"body_ref":"bin"}`)
	wants(t, said, "bin: bytes 0 to 4 of 4 as base64, the end.\n"+base64.StdEncoding.EncodeToString(binary))
	for _, bad := range []string{`{"body_ref":"t","limit":0}`, `{"body_ref":"t","offset":-1}`, `{"body_ref":"t","limit":524289}`} {
		if said, isError := h.call("read_result", bad); !isError || !strings.Contains(said, "]\nbad_request: ") {
			t.Errorf("%s: %s", bad, said)
		}
	}
}

// host.take looks for the raw characters on every line.
func TestM08_NoLineSeparatorOnStdout(t *testing.T) {
	const evil = "a\u2028b\u2029c\u0085d"
	home := testHome(t)
	startBroker(t, home, ordinary(func(a asked) any {
		switch a.Method {
		case wire.MethodOperationBody:
			return wire.OperationBodyResult{BytesBase64: []byte(evil), Size: int64(len(evil)), EOF: true}
		case wire.MethodAccessList:
			e := wire.NewError(wire.CodeBadRequest)
			e.Message = evil
			return e
		}
		return json.RawMessage(`{"operation_id":"o_` + evil + `","sequence":1,"state":"completed","pending":null,` +
			`"result":{"status":200,"headers":{"X":"` + evil + `"},"body_ref":"b","size":12}}`)
	}))
	h := startShim(t, "--home", home).ready()
	said, _ := h.call("http_request", doGet)
	if strings.Count(said, evil) < 3 {
		t.Errorf("the text did not come through: %q", said)
	}
	said, _ = h.call("list_access", "{}")
	wants(t, said, evil)
	h.send(request(evil, "nonsense/method", "{}"), request(evil+"2", "ping", `{"a":1,"A":2}`))
	b, err := json.Marshal(evil)
	must(t, err)
	raw := strings.ReplaceAll(string(b), "\u0085", `\u0085`)
	h.await(raw)
	h.await(raw[:len(raw)-1] + `2"`)
}

func TestM08_OneLine(t *testing.T) {
	raw := json.RawMessage("{\"a\":\"x\u2028\u2029\u0085y\"}")
	got := oneLine(raw)
	if hasSeparator(got) {
		t.Errorf("%q", got)
	}
	var a, b map[string]string
	must(t, json.Unmarshal(raw, &a))
	must(t, json.Unmarshal(got, &b))
	if a["a"] != b["a"] {
		t.Errorf("%q became %q", a["a"], b["a"])
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
