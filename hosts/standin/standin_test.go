package standin

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestStandinPlaysItsScript: by each API the call of the script comes first,
// then, with its result in the conversation, the sentence; and what came back
// is kept as it was.
func TestStandinPlaysItsScript(t *testing.T) {
	for _, c := range []struct {
		name, path, begin, result string
		call, offered             string
		failed                    bool
	}{
		{
			name: "Messages", path: "/v1/messages", offered: "mcp__yett__list_access",
			begin:  `{"stream":true,"tools":[{"name":"Bash"},{"name":"mcp__yett__list_access"}],"messages":[{"content":"go"}]}`,
			call:   `"name":"mcp__yett__list_access"`,
			result: `{"stream":true,"tools":[{"name":"mcp__yett__list_access"}],"messages":[{"content":[{"type":"tool_result","is_error":true,"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]}]}`,
			failed: true,
		},
		{
			name: "Messages without a stream", path: "/v1/messages", offered: "mcp__yett__list_access",
			begin:  `{"tools":[{"name":"mcp__yett__list_access"}],"messages":[{"content":"go"}]}`,
			call:   `"name":"mcp__yett__list_access"`,
			result: `{"tools":[{"name":"mcp__yett__list_access"}],"messages":[{"content":[{"type":"tool_result","content":"one\ntwo"}]}]}`,
		},
		{
			name: "Responses", path: "/v1/responses", offered: "mcp__yett/list_access",
			begin:  `{"tools":[{"type":"function","name":"shell"},{"type":"namespace","name":"mcp__yett","tools":[{"name":"list_access"}]}],"input":"go"}`,
			call:   `"name":"list_access","namespace":"mcp__yett"`,
			result: `{"tools":[{"type":"namespace","name":"mcp__yett","tools":[{"name":"list_access"}]}],"input":[{"type":"function_call_output","output":"one\ntwo"}]}`,
		},
		{
			name: "Gemini", path: "/v1beta/models/m:streamGenerateContent?alt=sse", offered: "mcp_yett_list_access",
			begin:  `{"tools":[{"functionDeclarations":[{"name":"mcp_yett_list_access"}]}],"contents":[{"parts":[{"text":"go"}]}]}`,
			call:   `"functionCall":{"args":{"a":1},"name":"mcp_yett_list_access"}`,
			result: `{"tools":[{"functionDeclarations":[{"name":"mcp_yett_list_access"}]}],"contents":[{"parts":[{"functionResponse":{"response":{"error":"one\ntwo"}}}]}]}`,
			failed: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(Call{Tool: "list_access", Arguments: map[string]any{"a": 1}})
			if got := post(t, m, c.path, c.begin); !strings.Contains(got, c.call) || strings.Contains(got, done) {
				t.Errorf("the first answer lacks %s:\n%s", c.call, got)
			}
			if got := post(t, m, c.path, c.result); !strings.Contains(got, done) || strings.Contains(got, c.call) {
				t.Errorf("the last answer is not the sentence:\n%s", got)
			}
			if got, want := m.Results(), []Result{{"one\ntwo", c.failed}}; !slices.Equal(got, want) {
				t.Errorf("results %+v, want %+v", got, want)
			}
			if got := m.Offered(); !slices.Equal(got, []string{c.offered}) {
				t.Errorf("offered %v, want %s", got, c.offered)
			}
			if got, want := string(m.Heard()), fmt.Sprintf("%s\n%s\n", c.begin, c.result); got != want {
				t.Errorf("heard %s, want %s", got, want)
			}
		})
	}
}

// TestStandinWithoutTools: a request that offers no tool of the script gets the
// sentence; a request that is not JSON is refused.
func TestStandinWithoutTools(t *testing.T) {
	m := New(Call{Tool: "list_access"})
	if got := post(t, m, "/v1/messages", `{"messages":[{"content":"a title, please"}]}`); !strings.Contains(got, done) {
		t.Errorf("answer %s", got)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/responses", strings.NewReader("no")))
	if w.Code != 400 {
		t.Errorf("status %d", w.Code)
	}
}

func post(t *testing.T, m *Model, path, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}
