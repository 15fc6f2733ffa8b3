//go:build linux

package shim

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Every reply in this file comes with standard input open.

func TestM14_CallsBeforeTheHandshake(t *testing.T) {
	h := startShim(t)
	h.send(toolCall(1, "list_access", "{}"), request(2, "tools/list", "{}"), request(3, "ping", "{}"), request(4, "nonsense/method", "{}"))
	for _, id := range []string{"1", "2", "4"} {
		if r := h.await(id); r.Error == nil || r.Error.Code != codeInvalid || !strings.Contains(r.Error.Message, "before initialize") {
			t.Errorf("request %s before initialize: %+v", id, r)
		}
	}
	if r := h.await("3"); r.Error != nil {
		t.Errorf("ping before initialize: %+v", r.Error)
	}
}

func TestM14_BetweenInitializeAndInitialized(t *testing.T) {
	for _, era := range eras[:4] {
		h := startShim(t)
		// One write: the requests are there before the answer to initialize.
		h.send(initialize(1, era) + "\n" + request(2, "tools/list", "{}") + "\n" + request(3, "ping", "{}") + "\n" + toolCall(4, "list_access", "{}"))
		if r := h.await("1"); r.Error != nil || r.Result.ProtocolVersion != era {
			t.Errorf("%s: initialize: %+v", era, r)
		}
		if r := h.await("2"); len(r.Result.Tools) != len(tools()) {
			t.Errorf("%s: tools/list between: %+v", era, r)
		}
		if r := h.await("3"); r.Error != nil {
			t.Errorf("%s: ping between: %+v", era, r)
		}
		if r := h.await("4"); r.Error == nil || r.Error.Code != codeInvalid {
			t.Errorf("%s: tools/call before initialized was not refused: %+v", era, r)
		}
		h.send(initialized, toolCall(5, "list_access", "{}"))
		if r := h.await("5"); r.Error != nil {
			t.Errorf("%s: tools/call after initialized: %+v", era, r.Error)
		}
	}
}

func TestM14_InitializedWithoutInitializeOpensNothing(t *testing.T) {
	h := startShim(t)
	h.send(initialized, toolCall(1, "list_access", "{}"))
	if r := h.await("1"); r.Error == nil || r.Error.Code != codeInvalid {
		t.Errorf("got %+v", r)
	}
}

func TestM14_DiscoverWithoutInitialize(t *testing.T) {
	h := startShim(t)
	h.send(request(1, "server/discover", "{"+modernMeta+"}"))
	r := h.await("1")
	if r.Error != nil || strings.Join(r.Result.SupportedVersions, " ") != "2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05" {
		t.Errorf("discover: %+v", r)
	}
	h.send(request(2, "tools/list", "{"+modernMeta+"}"))
	if r := h.await("2"); len(r.Result.Tools) != len(tools()) {
		t.Errorf("tools/list: %+v", r)
	}
	h.send(request(3, "tools/call", `{"name":"list_access","arguments":{},`+modernMeta+`}`))
	if r := h.await("3"); !r.Result.IsError {
		t.Errorf("tools/call without a broker: %+v", r)
	}
	// A request that says no version and follows no handshake stays outside.
	h.send(toolCall(4, "list_access", "{}"))
	if r := h.await("4"); r.Error == nil || r.Error.Code != codeInvalid {
		t.Errorf("tools/call without version: %+v", r)
	}
}

func TestM14_ModernFirstCallWithoutDiscover(t *testing.T) {
	h := startShim(t)
	h.send(request(1, "tools/call", `{"name":"list_access","arguments":{},`+modernMeta+`}`))
	if r := h.await("1"); r.Error != nil || !r.Result.IsError {
		t.Errorf("got %+v", r)
	}
	h.send(request(2, "tools/call", strings.Replace(`{"name":"list_access","arguments":{},`+modernMeta+`}`, "2026-07-28", "2099-01-01", 1)))
	if r := h.await("2"); r.Error == nil {
		t.Errorf("an unknown version was served: %+v", r)
	}
}

func TestM14_BytesFromBeforeTheGuardCallNoTool(t *testing.T) {
	ours, theirs := socketPair(t)
	// Written before the shim exists, as Node hosts do: no sender is known.
	early := initialize(1, "2025-11-25") + "\n" + request(2, "ping", "{}") + "\n" + request(3, "tools/list", "{}") + "\n" + initialized + "\n" +
		toolCall(4, "list_access", "{}") + "\n" + request(5, "server/discover", "{"+modernMeta+"}") + "\n" + request(6, "resources/list", "{}") + "\n"
	_, err := ours.WriteString(early)
	must(t, err)
	h := startHost(t, exec.Command(shimPath()), theirs)
	h.in = ours
	for _, id := range []string{"1", "2", "3", "5"} {
		if r := h.await(id); r.Error != nil {
			t.Errorf("request %s: %+v", id, r.Error)
		}
	}
	for _, id := range []string{"4", "6"} {
		if r := h.await(id); r.Error == nil || r.Error.Data.Code != "attribution_failed" || r.Error.Data.NextStep == "" {
			t.Errorf("request %s without a sender: %+v", id, r)
		}
	}
	h.send(toolCall(7, "list_access", "{}"))
	if r := h.await("7"); r.Error != nil {
		t.Errorf("the call after it, with a sender: %+v", r.Error)
	}
}

func TestM15_SmugglingOnTheLivePipe(t *testing.T) {
	h := startShim(t).ready()
	for _, c := range smuggled {
		h.send(c.line)
		if r := h.await(c.id); r.Error == nil || r.Error.Code != codeInvalid {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	h.send("not json")
	if r := h.await("null"); r.Error == nil || r.Error.Code != codeParse {
		t.Errorf("not JSON: %+v", r)
	}
	h.send(request(99, "ping", "{}"))
	h.await("99")
}

func TestM15_ArgumentsAreStrict(t *testing.T) {
	h := startShim(t).ready()
	for arguments, want := range map[string]string{
		`{"capability":"a","method":"GET","path":"/","Path2":"/x"}`:                `no argument "Path2"`,
		`{"capability":"a","METHOD":"GET","path":"/"}`:                             `no argument "METHOD"`,
		`{"capability":"a","method":"GET"}`:                                        "path is missing",
		`{"capability":7,"method":"GET","path":"/"}`:                               "capability has the wrong type",
		`{"capability":"a","method":"GET","path":"/","wait_ms":50001}`:             "wait_ms must be from 0 to 50000",
		`{"capability":"a","method":"GET","path":"/","wait_ms":-1}`:                "wait_ms must be from 0 to 50000",
		`{"capability":"a","method":"GET","path":"/","body":"x","body_base64":""}`: "give only one of body",
		`{"capability":"a","method":"GET","path":"/","query":{"a":1}}`:             "query has the wrong type: want an object of strings or arrays of strings.",
		`{"capability":"a","method":"GET","path":"/","headers":{"A":1}}`:           "headers has the wrong type: want an object of strings.",
		`{"capability":"a","method":null,"path":"/"}`:                              "method is missing",
		`[]`: "arguments must be an object",
	} {
		said, isError := h.call("http_request", arguments)
		if !isError || !strings.Contains(said, want) || !strings.HasPrefix(said, "bad_request: ") {
			t.Errorf("%s: %v %s", arguments, isError, said)
		}
	}
	if said, _ := h.call("list_access", `{"a":1}`); !strings.Contains(said, "this tool takes none.") {
		t.Error(said)
	}
	if said, _ := h.call("ssh_run", `{"capability":"a"}`); !strings.Contains(said, "exactly one of command and argv") {
		t.Error(said)
	}
	if said, _ := h.call("http_request", `{"capability":"a","method":"GET","path":"/","body":null,"headers":null}`); !strings.HasPrefix(said, "unavailable: ") {
		t.Error("null for an absent argument:", said)
	}
}

func TestM15_LineTooLong(t *testing.T) {
	h := startShim(t).ready()
	go func() {
		chunk := strings.Repeat("x", 1<<20)
		for range 9 {
			if _, err := h.in.WriteString(chunk); err != nil {
				return
			}
		}
	}()
	if r := h.await("null"); r.Error == nil || r.Error.Code != codeInvalid {
		t.Errorf("got %+v", r)
	}
	if code, _ := h.awaitExit(); code != exitFailed {
		t.Errorf("exit %d", code)
	}
}

func TestM10_RepliesWhileStdinIsOpen(t *testing.T) {
	h := startShim(t)
	within := func(id string) {
		t.Helper()
		began := time.Now()
		h.await(id)
		if d := time.Since(began); d > time.Second {
			t.Errorf("the reply to %s took %v", id, d)
		}
	}
	h.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	within("1")
	for _, b := range []byte(`{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n") {
		_, err := h.in.Write([]byte{b})
		must(t, err)
	}
	within("2")
	h.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}` + "\r\n\n" + `{"jsonrpc":"2.0","id":4,"method":"ping"}`)
	within("3")
	within("4")
	_, err := h.in.WriteString(`{"jsonrpc":"2.0","id":5,"method":"ping"}` + "\n" + `{"jsonrpc":"2.0","id":6,`)
	must(t, err)
	within("5")
	h.send(`"method":"ping"}`)
	within("6")
}

func TestM07_NothingIsAskedOfTheHost(t *testing.T) {
	home := testHome(t)
	startBroker(t, home, ordinary(func(a asked) any {
		return map[string]any{"operation_id": "o_1", "sequence": 1, "state": "queued",
			"pending": map[string]any{"approval_id": "a_1", "expires_at": time.Now().Add(time.Minute), "console_url": nil, "tag": "amber otter"}}
	}))
	h := startShim(t, "--home", home).ready() // declares elicitation
	said, isError := h.call("http_request", `{"capability":"a","method":"GET","path":"/","wait_ms":0}`)
	if isError || !strings.Contains(said, "queued") {
		t.Error(said)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		if strings.Contains(string(line), `"method"`) && !strings.Contains(string(line), `"result"`) {
			t.Errorf("the shim asked the host: %s", line)
		}
	}
}

func TestDuplicateIDInFlight(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return silence }))
	h := startShim(t, "--home", home).ready()
	h.send(toolCall(1, "list_access", "{}"))
	b.awaitRequest("access.list", 1)
	h.send(request(1, "ping", "{}"))
	if r := h.await("null"); r.Error == nil || r.Error.Code != codeInvalid {
		t.Errorf("got %+v", r)
	}
}
