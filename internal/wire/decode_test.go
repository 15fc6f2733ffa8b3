package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// frameOf is a request with these params.
func frameOf(params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"m","params":` + params + `}`
}

func TestM15_OneParse(t *testing.T) {
	deep := func(n int) string {
		return frameOf(`{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	many := func(n int) string {
		members := make([]string, n)
		for i := range members {
			members[i] = fmt.Sprintf(`"m%d":0`, i)
		}
		return frameOf("{" + strings.Join(members, ",") + "}")
	}
	for _, c := range []struct {
		name, frame, code string
		id                string
	}{
		{"good", frameOf(`{}`), "", "1"},
		{"id a string", `{"jsonrpc":"2.0","id":"a","method":"m","params":{}}`, "", `"a"`},
		{"id negative", `{"jsonrpc":"2.0","id":-1,"method":"m","params":{}}`, "", "-1"},
		{"equal values are no duplicates", frameOf(`{"a":"b","b":"a","c":["a","a",{"a":"a"}]}`), "", "1"},
		{"members of two objects", frameOf(`{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}]}`), "", "1"},
		{"a string that looks like members", frameOf(`{"a":"\"a\":1,\"a\":2"}`), "", "1"},
		{"duplicate", `{"jsonrpc":"2.0","id":1,"method":"a","method":"b","params":{}}`, CodeProtocolError, "1"},
		{"duplicate by case", `{"jsonrpc":"2.0","id":1,"method":"a","METHOD":"b","params":{}}`, CodeProtocolError, "1"},
		{"duplicate by the long s", `{"jsonrpc":"2.0","id":1,"method":"a","params":{},"paramſ":{}}`, CodeProtocolError, "1"},
		{"duplicate by the long s, escaped", `{"jsonrpc":"2.0","id":1,"method":"a","params":{},"param\u017f":{}}`, CodeProtocolError, "1"},
		{"duplicate by the Kelvin sign", frameOf("{\"key\":1,\"\u212aey\":2}"), CodeProtocolError, "1"},
		{"duplicate by an escape", frameOf(`{"key":1,"\u006bey":2}`), CodeProtocolError, "1"},
		{"duplicate in an object", frameOf(`{"action":{"path":"/a","Path":"/b"}}`), CodeProtocolError, "1"},
		{"duplicate in headers", frameOf(`{"action":{"headers":{"Accept":"a","accept":"b"}}}`), CodeProtocolError, "1"},
		{"duplicate in an array", frameOf(`{"a":[[{"x":1,"x":1}]]}`), CodeProtocolError, "1"},
		{"duplicate behind an object", frameOf(`{"a":{"b":1},"A":1}`), CodeProtocolError, "1"},
		{"duplicate behind an array", frameOf(`{"a":[1,"b"],"a":1}`), CodeProtocolError, "1"},
		{"empty names", frameOf(`{"":1,"":2}`), CodeProtocolError, "1"},
		{"unknown at the top", `{"jsonrpc":"2.0","id":1,"method":"m","params":{},"extra":1}`, CodeProtocolError, "1"},
		{"another case", `{"jsonrpc":"2.0","id":1,"Method":"m","params":{}}`, CodeProtocolError, "1"},
		{"trailing object", frameOf(`{}`) + `{}`, CodeProtocolError, ""},
		{"trailing word", frameOf(`{}`) + ` x`, CodeProtocolError, ""},
		{"trailing bracket", frameOf(`{}`) + `}`, CodeProtocolError, ""},
		{"trailing NUL", frameOf(`{}`) + "\x00", CodeProtocolError, ""},
		{"trailing space", frameOf(`{}`) + " \r\t", "", "1"},
		{"empty", "", CodeProtocolError, ""},
		{"space", "  ", CodeProtocolError, ""},
		{"array", `[]`, CodeProtocolError, ""},
		{"string", `"x"`, CodeProtocolError, ""},
		{"null", `null`, CodeProtocolError, ""},
		{"number", `1`, CodeProtocolError, ""},
		{"cut off", `{"jsonrpc":"2.0"`, CodeProtocolError, ""},
		{"comma at the end", `{"jsonrpc":"2.0","id":1,"method":"m","params":{},}`, CodeProtocolError, ""},
		{"comment", `{/**/}`, CodeProtocolError, ""},
		{"no id", `{"jsonrpc":"2.0","method":"m","params":{}}`, CodeProtocolError, ""},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"m","params":{}}`, CodeProtocolError, ""},
		{"id object", `{"jsonrpc":"2.0","id":{"a":1},"method":"m","params":{}}`, CodeProtocolError, ""},
		{"id array", `{"jsonrpc":"2.0","id":[1],"method":"m","params":{}}`, CodeProtocolError, ""},
		{"id boolean", `{"jsonrpc":"2.0","id":false,"method":"m","params":{}}`, CodeProtocolError, ""},
		{"id as long as may be", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID-2) + `","method":"m","params":{}}`, "", `"` + strings.Repeat("x", maxID-2) + `"`},
		{"id too long", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID-1) + `","method":"m","params":{}}`, CodeProtocolError, ""},
		{"invalid UTF-8 in a value", frameOf("{\"a\":\"\xff\"}"), CodeProtocolError, ""},
		{"invalid UTF-8 in a name", frameOf("{\"a\xc3\":1}"), CodeProtocolError, ""},
		{"a surrogate as UTF-8", frameOf("{\"a\":\"\xed\xa0\x80\"}"), CodeProtocolError, ""},
		{"half of a surrogate pair", frameOf(`{"a":"\ud800"}`), CodeProtocolError, "1"},
		{"half of a surrogate pair in a name", frameOf(`{"\udc00":1}`), CodeProtocolError, "1"},
		{"half of a surrogate pair in the id", `{"jsonrpc":"2.0","id":"\ud800","method":"m","params":{}}`, CodeProtocolError, ""},
		{"duplicate of the id", `{"jsonrpc":"2.0","id":1,"Id":2,"method":"m","params":{}}`, CodeProtocolError, ""},
		{"duplicate beside an id that is none", `{"jsonrpc":"2.0","id":[1],"method":"m","method":"m","params":{}}`, CodeProtocolError, ""},
		{"duplicate beside an id that is too long", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID-1) + `","method":"m","method":"m","params":{}}`, CodeProtocolError, ""},
		{"duplicate in what is no JSON", `{"jsonrpc":"2.0","id":1,"method":"m","method":"m","params":{},}`, CodeProtocolError, ""},
		{"overlong", frameOf("{\"a\":\"\xc0\xaf\"}"), CodeProtocolError, ""},
		{"byte order mark", "\ufeff" + frameOf(`{}`), CodeProtocolError, ""},
		{"as deep as may be", deep(MaxDepth - 2), "", "1"},
		{"too deep", deep(MaxDepth - 1), CodeProtocolError, ""},
		{"far too deep", deep(200_000), CodeProtocolError, ""},
		{"many members", many(maxMembers), "", "1"},
		{"too many members", many(maxMembers + 1), CodeProtocolError, "1"},
		{"no method", `{"jsonrpc":"2.0","id":1,"params":{}}`, CodeBadRequest, "1"},
		{"method null", `{"jsonrpc":"2.0","id":1,"method":null,"params":{}}`, CodeBadRequest, "1"},
		{"method a number", `{"jsonrpc":"2.0","id":1,"method":7,"params":{}}`, CodeBadRequest, "1"},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"m"}`, CodeBadRequest, "1"},
		{"params null", frameOf(`null`), CodeBadRequest, "1"},
		{"params an array", frameOf(`[]`), CodeBadRequest, "1"},
		{"params a string", frameOf(`"x"`), CodeBadRequest, "1"},
		{"no jsonrpc", `{"id":1,"method":"m","params":{}}`, CodeBadRequest, "1"},
		{"another jsonrpc", `{"jsonrpc":"1.0","id":1,"method":"m","params":{}}`, CodeBadRequest, "1"},
		{"a null deep inside is the method's business", frameOf(`{"a":[null]}`), "", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := DecodeRequest([]byte(c.frame))
			code := ""
			if err != nil {
				code = err.Code
			}
			if code != c.code || string(req.ID) != c.id {
				t.Fatalf("got %q with id %q, want %q with %q: %v", code, req.ID, c.code, c.id, err)
			}
			if err != nil && err.Closes() != (c.code == CodeProtocolError) {
				t.Fatalf("closes: %v", err.Closes())
			}
		})
	}
}

func TestDecodeParams(t *testing.T) {
	const good = `"session_id":"s","sequence":7,"capability":"c","action":{"method":"GET","path":"/"}`
	for _, c := range []struct{ name, params, code string }{
		{"good", `{` + good + `}`, ""},
		{"optional", `{` + good + `,"idempotency_key":"k","wait_ms":5}`, ""},
		{"unknown", `{` + good + `,"x":1}`, CodeProtocolError},
		{"unknown inside", `{"session_id":"s","sequence":7,"capability":"c","action":{"method":"GET","path":"/","x":1}}`, CodeProtocolError},
		{"unknown outranks missing", `{"session_id":"s","sequence":7,"x":1}`, CodeProtocolError},
		{"unknown inside outranks mistyped", `{"session_id":"s","sequence":7,"capability":1,"action":{"x":1}}`, CodeProtocolError},
		{"another case", `{"session_id":"s","sequence":7,"Capability":"c","action":{}}`, CodeProtocolError},
		{"capability missing", `{"session_id":"s","sequence":7,"action":{"method":"GET","path":"/"}}`, CodeBadRequest},
		{"capability null", `{"session_id":"s","sequence":7,"capability":null,"action":{}}`, CodeBadRequest},
		{"capability mistyped", `{"session_id":"s","sequence":7,"capability":{},"action":{}}`, CodeBadRequest},
		{"action missing", `{"session_id":"s","sequence":7,"capability":"c"}`, CodeBadRequest},
		{"action null", `{"session_id":"s","sequence":7,"capability":"c","action":null}`, CodeBadRequest},
		{"action a string", `{"session_id":"s","sequence":7,"capability":"c","action":"x"}`, CodeBadRequest},
		{"action's path a number", `{"session_id":"s","sequence":7,"capability":"c","action":{"path":1}}`, CodeBadRequest},
		{"header null", `{"session_id":"s","sequence":7,"capability":"c","action":{"headers":{"a":null}}}`, CodeBadRequest},
		{"argument null", `{"session_id":"s","sequence":7,"capability":"c","action":{"argv":["a",null]}}`, CodeBadRequest},
		{"query a number", `{"session_id":"s","sequence":7,"capability":"c","action":{"query":{"a":1}}}`, CodeBadRequest},
		{"query holds null", `{"session_id":"s","sequence":7,"capability":"c","action":{"query":{"a":[null]}}}`, CodeBadRequest},
		{"query holds an object", `{"session_id":"s","sequence":7,"capability":"c","action":{"query":{"a":{}}}}`, CodeBadRequest},
		{"wait_ms a fraction", `{` + good + `,"wait_ms":1.5}`, CodeBadRequest},
		{"wait_ms null", `{` + good + `,"wait_ms":null}`, CodeBadRequest},
		{"key a number", `{` + good + `,"idempotency_key":1}`, CodeBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := DecodeRequest([]byte(frameOf(c.params)))
			if err != nil {
				t.Fatal(err)
			}
			var m ActionRequest
			fail := DecodeParams(req.Params, &m)
			code := ""
			if fail != nil {
				code = fail.Code
			}
			if code != c.code {
				t.Fatalf("got %q, want %q: %v", code, c.code, fail)
			}
			// A session and a number are judged before a missing member is.
			if code != CodeProtocolError && (m.SessionID != "s" || m.Sequence != 7) {
				t.Fatalf("what was decodable is lost: %+v", m)
			}
		})
	}
}

// TestSequenceIsAnInteger: what is not written as an integer is none.
func TestSequenceIsAnInteger(t *testing.T) {
	for _, n := range []string{`"1"`, `1.0`, `1e0`, `1.5`, `true`, `null`, `[1]`, `{}`, `9223372036854775808`, `-9223372036854775809`} {
		var m SessionWait
		if fail := DecodeParams([]byte(`{"session_id":"s","sequence":`+n+`}`), &m); fail == nil || fail.Code != CodeBadRequest || m.Sequence != 0 || m.SessionID != "s" {
			t.Errorf("%s: %v %+v", n, fail, m)
		}
	}
	for n, want := range map[string]int64{"0": 0, "-1": -1, "9223372036854775807": 9223372036854775807} {
		var m SessionWait
		if fail := DecodeParams([]byte(`{"session_id":"s","sequence":`+n+`}`), &m); fail != nil || m.Sequence != want {
			t.Errorf("%s: %v %+v", n, fail, m)
		}
	}
}

func TestQueryKeepsOrder(t *testing.T) {
	var a Action
	if fail := DecodeParams([]byte(`{"query":{"a":"1","b":["3","2"],"c":[]}}`), &a); fail != nil {
		t.Fatal(fail)
	}
	if d := cmp.Diff(Query{"a": {"1"}, "b": {"3", "2"}, "c": {}}, a.Query); d != "" {
		t.Fatal(d)
	}
}

func TestActionKinds(t *testing.T) {
	text := "x"
	if _, r := (&Action{Command: &text, Path: &text}).SSH(); r == nil || r.Code != CodeBadRequest {
		t.Errorf("a path in an ssh action: %v", r)
	}
	if _, r := (&Action{Command: &text, Path: &text, Method: &text}).HTTP(); r == nil || r.Code != CodeBadRequest {
		t.Errorf("a command in an http action: %v", r)
	}
	if _, r := (&Action{Path: &text}).HTTP(); r == nil || r.Code != CodeBadRequest {
		t.Errorf("no method: %v", r)
	}
	if _, r := (&Action{}).SSH(); r == nil || r.Code != CodeBadRequest {
		t.Errorf("no command: %v", r)
	}
}

func TestC12_Negotiate(t *testing.T) {
	for _, c := range []struct {
		min, max, want int
		code           string
	}{
		{1, 1, 1, ""}, {0, 1, 1, ""}, {-5, 1, 1, ""}, {1, 2, 1, ""}, {0, 1 << 40, 1, ""},
		{2, 2, 0, CodeProtocolUnsupported}, {2, 9, 0, CodeProtocolUnsupported}, {0, 0, 0, CodeProtocolUnsupported}, {-3, -1, 0, CodeProtocolUnsupported},
		{2, 1, 0, CodeBadRequest}, {1, 0, 0, CodeBadRequest},
	} {
		for _, role := range []string{RoleShim, RoleNative, RoleCLI} {
			want, wantCode := c.want, c.code
			if role == RoleCLI && c.min == 0 && c.max == 0 {
				want, wantCode = ProtocolStable, ""
			}
			got, err := Negotiate(c.min, c.max, role)
			code := ""
			if err != nil {
				code = err.Code
				if err.NextStep == "" {
					t.Errorf("%d–%d %s: no next step", c.min, c.max, role)
				}
			}
			if got != want || code != wantCode {
				t.Errorf("%d–%d %s: %d %q, want %d %q", c.min, c.max, role, got, code, want, wantCode)
			}
		}
	}
}

func TestC12_TheOlderSideIsNamed(t *testing.T) {
	for _, c := range []struct {
		min, max int
		role     string
		step     string
	}{
		{2, 2, RoleShim, "Update and restart yett"}, {2, 2, RoleNative, "Update and restart yett"}, {2, 2, RoleCLI, "Update and restart yett"},
		{-1, -1, RoleShim, "Update yett-mcp"}, {0, 0, RoleShim, "Update yett-mcp"}, {0, 0, RoleNative, "Update the client"}, {-1, -1, RoleCLI, "Update yett:"},
	} {
		_, err := Negotiate(c.min, c.max, c.role)
		if err == nil || !strings.HasPrefix(err.NextStep, c.step) {
			t.Errorf("%d–%d %s: %v, want …%s…", c.min, c.max, c.role, err, c.step)
			continue
		}
		if err.Data["protocol_min"] != ProtocolMin || err.Data["protocol_max"] != ProtocolMax {
			t.Errorf("the broker's range: %v", err.Data)
		}
	}
}

var requestSeeds = []string{
	frameOf(`{}`), frameOf(`{"a":{"b":[1,"x",null]}}`), frameOf(`{"key":1,"\u212aey":2}`), frameOf(`{"a":1,"A":2}`),
	`{"jsonrpc":"2.0","id":"a","method":"m","params":{},"param\u017f":{}}`, `[]`, `null`, `{}`, `{"id":1}`, "", " ", "{", `{"id":1}{`,
	frameOf(`{"session_id":"s","sequence":1,"capability":"c","action":{"method":"GET","path":"/","query":{"a":["1"]},"headers":{"A":"b"}}}`),
}

// FuzzDecodeRequest: an accepted request reads the same to a decoder that
// folds case and takes the last of duplicates.
func FuzzDecodeRequest(f *testing.F) {
	if len(requestSeeds) < 10 {
		f.Fatal("the corpus is empty")
	}
	for _, s := range requestSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		req, fail := DecodeRequest(frame)
		if fail != nil {
			if fail.Code != CodeProtocolError && fail.Code != CodeBadRequest || fail.Message == "" || fail.NextStep == "" {
				t.Fatalf("%+v", fail)
			}
			if _, err := (Reply{ID: req.ID, Error: fail}).Encode(); err != nil {
				t.Fatalf("the refusal cannot be answered: %v", err)
			}
			return
		}
		var lax struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal(frame, &lax); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		if string(lax.ID) != string(req.ID) || lax.Method != req.Method || string(lax.Params) != string(req.Params) {
			t.Fatalf("two parsers read two requests: %s", frame)
		}
		var m ActionRequest
		if fail := DecodeParams(req.Params, &m); fail == nil {
			var laxM ActionRequest
			if err := json.Unmarshal(req.Params, &laxM); err != nil {
				t.Fatalf("accepted what encoding/json refuses: %v", err)
			}
			if d := cmp.Diff(laxM, m); d != "" {
				t.Fatalf("two parsers read two actions: %s", d)
			}
		} else if !errors.Is(fail, &Error{Code: CodeProtocolError}) && fail.Code != CodeBadRequest {
			t.Fatalf("%+v", fail)
		}
	})
}
