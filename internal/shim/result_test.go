//go:build linux

package shim

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

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
			[]string{"completed: HTTP 201 Created (operation o_42).", "2 echoes", "body (20 bytes of text):\n" + three, `"activity":"activity:7"`}, nil},
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
			[]string{"capability_not_granted: ", "call request_access with http:a", "was not executed", "Next for you: ", "For the person: "}, []string{"Next step: "}},
		{"outside", operation("denied", nil, wire.NewReason(wire.ReasonOutsideCapability, "Method PUT."), nil), true, []string{"action_outside_capability: ", "Method PUT."}, []string{"request_access"}},
		{"indeterminate", operation("indeterminate", nil, &wire.Reason{Code: "x", Message: "No answer came.", NextStep: "Look there."}, nil), true,
			[]string{"indeterminate: No answer came.", "operation o_42", "Next step: Look there."}, []string{"Do not repeat"}},
		{"indeterminate without a reason", operation("indeterminate", nil, nil, nil), true,
			[]string{"indeterminate: ", "may or may not", "Do not repeat"}, nil},
		{"one echo", operation("completed", wire.HTTPResult{Status: 200, Redacted: 1}, nil, nil), false,
			[]string{"1 echo of the credential in the answer was replaced."}, nil},
		{"not sent, with a step", operation("completed", wire.NotSent{Error: "no value.", NextStep: "Set it."}, nil, nil), true,
			[]string{"not_sent: no value. The action", "Next step: Set it."}, []string{"later"}},
		{"result not kept", operation("completed", nil, nil, nil), false, []string{"completed: operation o_42", "kept no longer"}, []string{"internal"}},
		{"behind another", operation("queued", nil, nil, nil), false, []string{"queued: ", "equal action of another agent", "get_operation"}, []string{"card"}},
		{"behind a lost one", operation("denied", nil, wire.NewReason(wire.CodeOutcomeUnknown, ""), nil), true,
			[]string{"outcome_unknown: ", "make the same call again; a person is then asked"}, nil},
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
