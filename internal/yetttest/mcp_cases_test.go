package yetttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// demo is a broker with the usual upstream.
func demoBroker(t testing.TB) (*Broker, *Upstream) {
	up := StartUpstream(t, canary)
	return Start(t, up.Access(), "demo", canary), up
}

// TestM01_M02_LiveCatalogue: what a broker's agent is shown survives every host.
func TestM01_M02_LiveCatalogue(t *testing.T) {
	b, _ := demoBroker(t)
	h := b.startShim().ready()
	h.send(request(1, "tools/list", "{}"))
	var tools []mcpTool
	for _, tool := range h.await("1").Result.Tools {
		tools = append(tools, mcpTool{tool.Name, tool.InputSchema, tool.OutputSchema})
	}
	checkCatalogue(t, tools)
}

// TestM03_NobodyDecides: no call waits longer than 50 s, the default is below
// that, and a decision that comes after the call returned runs nothing.
func TestM03_NobodyDecides(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	h.send(request("list", "tools/list", "{}"))
	for _, tool := range h.await(`"list"`).Result.Tools {
		wait, _ := tool.InputSchema["properties"].(map[string]any)["wait_ms"].(map[string]any)
		if wait == nil {
			continue
		}
		if wait["maximum"] != 50_000.0 || !strings.Contains(wait["description"].(string), "default 45000") {
			t.Errorf("%s: wait_ms is %v", tool.Name, wait)
		}
	}
	h.call("request_access", `{"capabilities":["http:demo.each"],"wait_ms":50001}`).refused(t, "bad_request", "0 to 50000")
	asked := h.call("request_access", `{"capabilities":["http:demo.each"],"wait_ms":40}`).wants(t, "pending: ")
	first := asked.session(t).Pending
	again := h.call("request_access", `{"capabilities":["http:demo.each"],"wait_ms":40}`).wants(t, "pending: ")
	if second := again.session(t).Pending; second.ApprovalID != first.ApprovalID || len(b.Pending()) != 1 {
		t.Fatalf("a second card: %v then %v", first, second)
	}
	h.grant("http:demo.each")

	const post = `{"capability":"http:demo.each","method":"POST","path":"/each/x","wait_ms":%d}`
	queued := h.call("http_request", fmt.Sprintf(post, 40)).wants(t, "queued: ")
	op := queued.operation(t)
	b.ApproveTag(op.Pending.ApprovalID, queued.tag(t))
	h.call("list_access", "{}")
	if seen := up.Seen(); len(seen) != 0 {
		t.Fatalf("the decision ran the action by itself: %v", seen)
	}
	h.call("get_operation", fmt.Sprintf(`{"operation_id":%q}`, op.OperationID)).wants(t, "completed: HTTP 200")
	if seen := up.Seen(); len(seen) != 1 {
		t.Fatalf("the upstream saw %v", seen)
	}
	// A card that nobody decides: an equal request waits for the same one.
	other := h.call("http_request", fmt.Sprintf(post, 0)).wants(t, "queued: ").operation(t)
	if same := h.call("http_request", fmt.Sprintf(post, 40)).wants(t, "queued: ").operation(t); same.OperationID != other.OperationID {
		t.Errorf("repeated: %s, then %s", other.OperationID, same.OperationID)
	}
}

// TestM04_RetriedPostIsNotExecutedTwice: while the first is under way, after a
// crash, and from another session.
func TestM04_RetriedPostIsNotExecutedTwice(t *testing.T) {
	up, arrived := hangs(t)
	b := Start(t, up.Access(), "demo", canary)
	h := b.startShim().ready()
	h.grant("http:demo.write")
	const post = `{"capability":"http:demo.write","method":"POST","path":"/v1/hang","body":"pay","wait_ms":20}`
	op := h.call("http_request", post).wants(t, "executing: ", "Do not repeat").operation(t)
	<-arrived
	h.call("http_request", post).refused(t, "outcome_unknown", op.OperationID, "Nothing was executed now")
	h.call("http_request", strings.Replace(post, `"wait_ms":20`, `"wait_ms":20,"idempotency_key":"k1"`, 1)).refused(t, "outcome_unknown", op.OperationID)
	h.call("get_operation", fmt.Sprintf(`{"operation_id":%q,"wait_ms":20}`, op.OperationID)).wants(t, "executing: ")

	other := b.startAgent().ready()
	other.grant("http:demo.write")
	denied := other.call("http_request", post)
	if strings.Contains(denied.text, op.OperationID) {
		t.Errorf("another agent learned the operation:\n%s", denied.text)
	}
	if denied.isError {
		denied.refused(t, "outcome_unknown")
	} else {
		denied.wants(t, "queued: ")
	}

	b.Restart()
	h.call("list_access", "{}").wants(t, "This is a new session", "none is granted")
	h.grant("http:demo.write")
	h.call("http_request", post).refused(t, "outcome_unknown", op.OperationID, "Nothing was executed now")
	h.call("get_operation", fmt.Sprintf(`{"operation_id":%q}`, op.OperationID)).refused(t, "indeterminate", "Do not repeat")
	h.call("http_request", strings.Replace(post, "hang", "other", 1)).wants(t, "completed: HTTP 200")
	if seen := up.Seen(); !slices.Equal(seen, []string{"POST /v1/hang", "POST /v1/other"}) {
		t.Errorf("the upstream saw %v", seen)
	}
}

// TestM04_IdempotencyKey: a repeat with the key is the first operation, the key
// with another action an error.
func TestM04_IdempotencyKey(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	h.grant("http:demo.write")
	const post = `{"capability":"http:demo.write","method":"POST","path":"/v1/%s","idempotency_key":"k"}`
	op := h.call("http_request", fmt.Sprintf(post, "a")).wants(t, "completed: ").operation(t)
	if same := h.call("http_request", fmt.Sprintf(post, "a")).wants(t, "completed: ").operation(t); same.OperationID != op.OperationID {
		t.Errorf("repeated as %s", same.OperationID)
	}
	h.call("http_request", fmt.Sprintf(post, "b")).refused(t, "bad_request")
	if seen := up.Seen(); !slices.Equal(seen, []string{"POST /v1/a"}) {
		t.Errorf("the upstream saw %v", seen)
	}
}

// TestM07_ElicitationNeverDecides: a host that would answer yes to everything
// is not asked, and whatever it says unasked decides nothing.
func TestM07_ElicitationNeverDecides(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready() // its capabilities have elicitation
	asked := h.call("request_access", `{"capabilities":["http:demo.write"],"wait_ms":0}`).wants(t, "pending: ")
	id := asked.session(t).Pending.ApprovalID
	for i := range 5 {
		for _, action := range []string{"accept", "decline", "cancel"} {
			h.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"action":%q,"content":{"confirm":true}}}`, i, action),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":"elicit-%d","result":{"action":%q}}`, i, action))
		}
	}
	h.call("request_access", `{"capabilities":["http:demo.write"],"wait_ms":30}`).wants(t, "pending: ")
	h.call("http_request", `{"capability":"http:demo.write","method":"POST","path":"/v1/x"}`).refused(t, "capability_not_granted")
	h.call("http_request", `{"capability":"http:demo.write","method":"POST","path":"/v1/x","confirm":true}`).refused(t, "bad_request", "confirm")
	b.CardOf(id) // still waits
	if seen := up.Seen(); len(seen) != 0 {
		t.Errorf("the upstream saw %v", seen)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		var m struct{ Method string }
		if json.Unmarshal(line, &m); m.Method != "" {
			t.Errorf("the host was asked: %s", line)
		}
	}
}

// TestM08_SeparatorsInABody: U+2028 and U+2029 arrive at the agent and split no
// line on the way; host.take looks at every line.
func TestM08_SeparatorsInABody(t *testing.T) {
	const nasty = "one\u2028two\u2029three\u0085four\r\n\vfive\f six \\u2028 end"
	up := StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Note", "a\u2028b")
		w.Write([]byte(nasty))
	})
	b := Start(t, up.Access(), "demo", canary)
	h := b.startShim().ready()
	h.grant("http:demo.read")
	r := h.call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`).wants(t, "completed: ", nasty)
	var res struct {
		Result wire.HTTPResult
	}
	r.decode(t, &res)
	h.call("read_result", fmt.Sprintf(`{"body_ref":%q}`, res.Result.BodyRef)).wants(t, nasty)
	h.call("http_request", `{"capability":"http:demo.read\u2028","method":"GET","path":"/v1/x"}`).refused(t, "capability_unknown")
	h.send("{\"jsonrpc\":\"2.0\",\"id\":\"a\u2028b\",\"method\":\"ping\",\"params\":{}}")
	h.until("the answer to ping", func() bool {
		for id := range h.replies {
			if strings.HasPrefix(id, `"a`) {
				return true
			}
		}
		return false
	})
}

// TestM10_AnswersWhileStdinIsOpen: a message is answered when its line is
// there, however it was cut. (No test of this file closes standard input to get
// an answer.)
func TestM10_AnswersWhileStdinIsOpen(t *testing.T) {
	b, _ := demoBroker(t)
	h := b.startShim().ready()
	for _, c := range toolCall("bytes", "list_access", "{}") + "\n" {
		h.in.WriteString(string(c))
	}
	h.await(`"bytes"`).said(t).wants(t, "http:demo.read")
	h.in.WriteString(toolCall("two", "list_access", "{}") + "\n" + request("three", "ping", "{}") + "\n" + `{"jsonrpc":"2.0","id":"four",`)
	h.await(`"two"`).said(t).wants(t, "http:demo.read")
	h.await(`"three"`)
	h.in.WriteString(`"method":"ping"}` + "\n")
	h.await(`"four"`)
}

// TestM14_NoCallBeforeTheHandshake: and nothing of it reaches the broker.
func TestM14_NoCallBeforeTheHandshake(t *testing.T) {
	b, _ := demoBroker(t)
	before := len(b.Sessions())
	h := b.startShim()
	h.send(toolCall(1, "list_access", "{}"), request(2, "tools/list", "{}"), request(3, "ping", "{}"))
	for _, id := range []string{"1", "2"} {
		if r := h.await(id); r.Error == nil || r.Error.Code != -32600 {
			t.Errorf("%s before initialize: %+v", id, r)
		}
	}
	if r := h.await("3"); r.Error != nil {
		t.Errorf("ping: %+v", r.Error)
	}
	h.send(initialize(4, "2025-06-18"), request(5, "tools/list", "{}"), request(6, "ping", "{}"), toolCall(7, "list_access", "{}"))
	for _, id := range []string{"4", "5", "6"} {
		if r := h.await(id); r.Error != nil {
			t.Errorf("%s: %+v", id, r.Error)
		}
	}
	if r := h.await("7"); r.Error == nil || !strings.Contains(r.Error.Message, "initialized") {
		t.Errorf("tools/call before initialized: %+v", r)
	}
	if now := b.Sessions(); len(now) != before {
		t.Errorf("a session was opened: %+v", now)
	}
	h.send(initialized)
	h.call("list_access", "{}").wants(t, "none is granted")
	if now := b.Sessions(); len(now) != before+1 {
		t.Errorf("%d sessions, %d before", len(now), before)
	}
}

// TestM15_SmugglingThroughTheShim: whatever two parsers could read in two ways
// is refused, reaches no upstream and makes no operation.
func TestM15_SmugglingThroughTheShim(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	h.grant("http:demo.read", "http:demo.write")
	const get = `"capability":"http:demo.read","method":"GET","path":"/v1/plain"`
	for i, line := range []string{
		`{"jsonrpc":"2.0","id":%d,"method":"ping","METHOD":"tools/call","params":{"name":"http_request","arguments":{` + get + `}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"ping","method":"tools/call","params":{"name":"http_request","arguments":{` + get + `}}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/call\",\"params\":{\"name\":\"list_access\",\"arguments\":{}},\"param\u017f\":{\"name\":\"http_request\",\"arguments\":{" + get + "}}}",
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_access","name":"http_request","arguments":{` + get + `}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_access","Name":"http_request","arguments":{` + get + `}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"http_request","arguments":{` + get + `,"method":"POST"}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"http_request","arguments":{` + get + `,"METHOD":"POST"}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"http_request","arguments":{` + get + `,"capability":"http:demo.write"}}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/call\",\"params\":{\"name\":\"http_request\",\"arguments\":{" + get + ",\"headers\":{\"X-A\":\"1\",\"x-a\":\"2\"}}}}",
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"http_request","arguments":{` + get + `,"pa\u0074h":"/v1/other"}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"http_request","arguments":{` + get + `,"session_id":"s","sequence":1}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"http_request","arguments":{` + get + `}}} {"jsonrpc":"2.0","id":999,"method":"ping"}`,
	} {
		h.send(fmt.Sprintf(line, 100+i))
		var r mcpReply
		h.until("an answer to "+line, func() bool {
			for id, raw := range h.replies {
				delete(h.replies, id)
				return json.Unmarshal(raw, &r) == nil
			}
			return false
		})
		if r.Error == nil && !(r.Result.IsError && strings.Contains(r.said(t).text, "bad_request")) {
			t.Errorf("not refused: %s\n%+v", line, r.Result)
		}
	}
	if seen := up.Seen(); len(seen) != 0 {
		t.Errorf("the upstream saw %v", seen)
	}
	for _, row := range b.Activity() {
		if row.OperationID != "" {
			t.Errorf("an operation: %+v", row)
		}
	}
	h.call("http_request", "{"+get+"}").wants(t, "completed: HTTP 200")
	if seen := up.Seen(); !slices.Equal(seen, []string{"GET /v1/plain"}) {
		t.Errorf("the upstream saw %v", seen)
	}
}

// TestM18_AWaitingCallBlocksNothing: not the pings, not other calls of the same
// agent.
func TestM18_AWaitingCallBlocksNothing(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	h.grant("http:demo.read")
	waiting := h.begin("request_access", `{"capabilities":["http:demo.write"],"wait_ms":50000}`)
	card := b.WaitCard()
	for i := range 200 {
		h.send(request(fmt.Sprint("ping", i), "ping", "{}"))
	}
	h.send(request("list", "tools/list", "{}"))
	for i := range 200 {
		h.await(fmt.Sprintf(`"ping%d"`, i))
	}
	h.await(`"list"`)
	h.call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`).wants(t, "completed: HTTP 200")
	if h.answered(waiting) || len(up.Seen()) != 1 {
		t.Fatal("the waiting call did not wait")
	}
	b.Approve(card, "--for", "1h")
	h.await(waiting).said(t).wants(t, "granted: ")
}

// TestM18_AHostThatDoesNotReadFreezesNobodyElse, and when it reads at last,
// every line is whole.
func TestM18_AHostThatDoesNotReadFreezesNobodyElse(t *testing.T) {
	big := strings.Repeat("0123456789abcde\n", 3<<10) // 48 KiB, in the result itself
	up := StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(big)) })
	b := Start(t, up.Access(), "demo", canary)
	slow := b.startShim().ready()
	slow.grant("http:demo.read")
	slow.pause()
	const calls = 60 // 3 MB, far more than a pipe holds
	for range calls {
		slow.begin("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/slow"}`)
	}
	quick := b.startAgent().ready()
	quick.grant("http:demo.read")
	for range 20 {
		quick.call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/quick"}`).wants(t, "completed: HTTP 200")
	}
	slow.resume()
	for i := range calls {
		slow.await(fmt.Sprint(slow.nextID-i)).said(t).wants(t, big)
	}
}
