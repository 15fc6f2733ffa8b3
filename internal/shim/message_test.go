//go:build linux

package shim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// smuggled are messages that two parsers can read differently. Each must be
// answered with -32600 and the id that follows it.
var smuggled = []struct{ name, line, id string }{
	{"method in two cases", `{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call"}`, "1"},
	{"the long s", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{},\"param\u017f\":{\"name\":\"x\"}}", "1"},
	{"the kelvin sign", "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\",\"params\":{\"key\":1,\"\u212aey\":2}}", "2"},
	{"duplicate name", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"list_access","name":"ssh_run","arguments":{}}}`, `"a"`},
	{"escaped duplicate", `{"jsonrpc":"2.0","id":3,"method":"ping","m\u0065thod":"tools/call"}`, "3"},
	{"inside arguments", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"http_request","arguments":{"capability":"a","Capability":"b"}}}`, "4"},
	{"inside headers", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"http_request","arguments":{"headers":{"Accept":"a","accept":"b"}}}}`, "5"},
	{"inside an array", `{"jsonrpc":"2.0","id":6,"method":"ping","params":{"x":[1,{"a":1,"A":2}]}}`, "6"},
	{"half of a surrogate pair", `{"jsonrpc":"2.0","id":14,"method":"tools/call","params":{"name":"list_access","arguments":{"a":"\ud800"}}}`, "14"},
	{"an id of half a surrogate pair", `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`, "null"},
	{"two ids", `{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}`, "null"},
	{"two ids in two cases", `{"jsonrpc":"2.0","id":7,"ID":8,"method":"ping"}`, "null"},
	{"id after the duplicate", `{"jsonrpc":"2.0","method":"ping","method":"ping","id":9}`, "9"},
	{"a case variant alone", `{"jsonrpc":"2.0","id":10,"METHOD":"ping"}`, "10"},
	{"a batch", `[{"jsonrpc":"2.0","id":11,"method":"ping"}]`, "null"},
	{"null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null"},
	{"fractional id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "null"},
	{"id that floats round", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, "null"},
	{"object id", `{"jsonrpc":"2.0","id":{"id":1},"method":"ping"}`, "null"},
	{"no version", `{"id":12,"method":"ping"}`, "12"},
	{"array params", `{"jsonrpc":"2.0","id":13,"method":"ping","params":[]}`, "13"},
}

func TestM15_SmuggledMessagesAreRefused(t *testing.T) {
	for _, c := range smuggled {
		m, refused := parse([]byte(c.line))
		if refused == nil {
			t.Errorf("%s: passed as %+v", c.name, m)
			continue
		}
		var r reply
		must(t, json.Unmarshal(refused.encode(), &r))
		if r.Error.Code != codeInvalid || string(r.ID) != c.id {
			t.Errorf("%s: code %d id %s, want %d id %s", c.name, r.Error.Code, r.ID, codeInvalid, c.id)
		}
	}
}

func TestM15_NotJSON(t *testing.T) {
	for _, line := range []string{"hello", "{", `{"a":1}{"b":2}`, `{"a":1} x`, "{\"a\":\"\xff\"}", strings.Repeat("[", 100) + strings.Repeat("]", 100), "\"x", "1 2"} {
		if _, refused := parse([]byte(line)); refused == nil || refused.code != codeParse {
			t.Errorf("%q: %+v", line, refused)
		}
	}
}

func TestM15_Limits(t *testing.T) {
	ping := func(params string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + params + `}`)
	}
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	many := func(n int) string {
		var ms []string
		for i := range n {
			ms = append(ms, fmt.Sprintf(`"m%d":0`, i))
		}
		return "{" + strings.Join(ms, ",") + "}"
	}
	for _, params := range []string{deep(62), many(1024)} {
		if _, refused := parse(ping(params)); refused != nil {
			t.Errorf("%.20s…: %+v", params, refused)
		}
	}
	if _, refused := parse(ping(deep(63))); refused == nil || refused.code != codeParse || refused.id != nil {
		t.Errorf("too deep: %+v", refused)
	}
	if _, refused := parse(ping(many(1025))); refused == nil || refused.code != codeInvalid || string(refused.id) != "1" {
		t.Errorf("too many members: %+v", refused)
	}
}

func TestM15_IDsAreSpelledAsTheSDKDoes(t *testing.T) {
	for raw, want := range map[string]string{
		`1`: "1", `-0`: "0", `9007199254740992`: "9007199254740992", `"a"`: `"a"`, `"\u0061\u003c"`: `"a\u003c"`, `"\ud800"`: "\"\ufffd\"",
		`9007199254740993`: "", `1.0`: "", `1e2`: "", `true`: "", `null`: "", `{}`: "", `[1]`: "", ``: "",
	} {
		if got := usableID(json.RawMessage(raw)); string(got) != want || (got == nil) != (want == "") {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

func TestM15_PlainMessagesPass(t *testing.T) {
	m, refused := parse([]byte(`{"jsonrpc":"2.0","id":-5,"method":"tools/call","params":{"name":"x","arguments":{"name":"y","b":{"name":"z"}}},"extra":1}`))
	if refused != nil || m.method != "tools/call" || string(m.id) != "-5" || !strings.Contains(string(m.params), `"z"`) {
		t.Errorf("%+v %+v", m, refused)
	}
	m, refused = parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	if refused != nil || m.method != "" {
		t.Errorf("a response: %+v %+v", m, refused)
	}
	m, refused = parse([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized","params":null}`))
	if refused != nil || m.id != nil || m.params != nil {
		t.Errorf("a notification: %+v %+v", m, refused)
	}
}

// FuzzM15 holds that what passes means the same to every parser: to ours, to
// the SDK's and to encoding/json, which folds case and takes the last.
func FuzzM15(f *testing.F) {
	seeds := 0
	for _, c := range smuggled {
		f.Add([]byte(c.line))
		seeds++
	}
	for _, line := range []string{initialized, initialize(1, "2025-11-25"), toolCall("x", "ssh_run", `{"argv":["a"]}`), `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		f.Add([]byte(line))
		seeds++
	}
	if seeds < 20 {
		f.Fatalf("the corpus has %d seeds", seeds)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, refused := parse(line)
		if refused != nil {
			if !json.Valid(refused.encode()) {
				t.Fatalf("the refusal is not JSON: %s", refused.encode())
			}
			return
		}
		if m.method == "" {
			return
		}
		req, err := m.request()
		if err != nil {
			t.Fatalf("accepted %q and cannot pass it on: %v", line, err)
		}
		theirs, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			t.Fatalf("accepted %q, the SDK does not: %v", line, err)
		}
		other, ok := theirs.(*jsonrpc.Request)
		if !ok || other.Method != req.Method || other.ID != req.ID {
			t.Fatalf("%q: ours %+v, the SDK's %+v", line, req, theirs)
		}
		var folded struct {
			ID     any
			Method string
			Params json.RawMessage
		}
		must(t, json.Unmarshal(line, &folded))
		if folded.Method != req.Method || string(folded.Params) != string(m.params) && string(folded.Params) != "null" {
			t.Fatalf("%q: ours %+v, folded %+v", line, req, folded)
		}
	})
}

func TestModernIsReadFromMeta(t *testing.T) {
	for params, want := range map[string]bool{
		`{` + modernMeta + `}`: true,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}`: false,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":3}}`:            false,
		`{"_META":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`: false,
		`{}`: false,
	} {
		if modern(json.RawMessage(params)) != want {
			t.Errorf("%s: not %v", params, want)
		}
	}
}
