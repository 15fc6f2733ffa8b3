package yetttest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// mcpReply is an answer of yett-mcp.
type mcpReply struct {
	ID    json.RawMessage
	Error *struct {
		Code    int
		Message string
		Data    struct {
			Code     string
			NextStep string `json:"next_step"`
		}
	}
	Result struct {
		ProtocolVersion   string
		SupportedVersions []string
		Capabilities      map[string]any
		Tools             []struct {
			Name         string
			Description  string
			InputSchema  map[string]any
			OutputSchema map[string]any
		}
		Content []struct{ Type, Text string }
		IsError bool
	}
}

// said is what a tool call came back with.
type said struct {
	text    string
	isError bool
}

func (r mcpReply) said(t testing.TB) said {
	t.Helper()
	if r.Error != nil {
		t.Fatalf("the call got the error %d %s", r.Error.Code, r.Error.Message)
	}
	if len(r.Result.Content) != 1 || r.Result.Content[0].Type != "text" {
		t.Fatalf("the result is not one text block: %+v", r.Result)
	}
	return said{r.Result.Content[0].Text, r.Result.IsError}
}

// wants fails unless every part stands in the text.
func (s said) wants(t testing.TB, parts ...string) said {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(s.text, p) {
			t.Fatalf("the text lacks %q:\n%.2000s", p, s.text)
		}
	}
	return s
}

// refused wants an error result with a code and a next step.
func (s said) refused(t testing.TB, code string, parts ...string) said {
	t.Helper()
	if !s.isError || !strings.Contains(s.text, code+": ") {
		t.Fatalf("isError %v, want %s:\n%.2000s", s.isError, code, s.text)
	}
	step := "Next step: "
	if strings.Contains(s.text, "Next for you: ") {
		step = "For the person: "
	}
	return s.wants(t, append(parts, step)...)
}

// decode reads the JSON line of the text into v.
func (s said) decode(t testing.TB, v any) {
	t.Helper()
	for line := range strings.Lines(s.text) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), v); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			return
		}
	}
	t.Fatalf("no JSON in the text:\n%s", s.text)
}

func (s said) operation(t testing.TB) (op Operation) {
	t.Helper()
	s.decode(t, &op)
	return op
}

func (s said) session(t testing.TB) (r wire.SessionResult) {
	t.Helper()
	s.decode(t, &r)
	return r
}

// tag returns the two words that the agent is to tell the person.
func (s said) tag(t testing.TB) string {
	t.Helper()
	m := regexp.MustCompile(`The card shows the words "([^"]+)"`).FindStringSubmatch(s.text)
	if m == nil || len(strings.Fields(strings.ReplaceAll(m[1], "-", " "))) != 2 {
		t.Fatalf("no two-word tag in the text:\n%s", s.text)
	}
	return m[1]
}

func request(id any, method, params string) string {
	raw, err := json.Marshal(id)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, raw, method, params)
}

func toolCall(id any, name, arguments string) string {
	return request(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

func initialize(id any, version string) string {
	return request(id, "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"elicitation":{}},"clientInfo":{"name":"agent","version":"7"}}`, version))
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
