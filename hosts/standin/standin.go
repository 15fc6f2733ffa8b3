// Package standin answers in place of a model: it speaks the Anthropic Messages
// API, the OpenAI Responses API and the Gemini API well enough for a released
// agent to call the MCP tools of a script, one after the other, and to end. It
// trusts nobody and needs no key: it is for tests, on loopback.
//
// A conversation that has n results of Yett's tools in it gets the n-th call of
// the script, and after the last a sentence. Requests that offer none of the
// tools, such as those for a title, get the sentence at once.
package standin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxRequest bounds what an agent may send at once.
const maxRequest = 32 << 20

// done is what the model says when its script is over.
const done = "All done."

// Call is a tool call that the agent is told to make. Tool is the name that
// yett-mcp gives it; hosts put something of their own before that.
type Call struct {
	Tool      string
	Arguments map[string]any
}

// Result is what came back to the model from a tool.
type Result struct {
	Text  string
	Error bool // the host marked it as an error
}

// Model is a stand-in. It is an http.Handler, safe for concurrent use.
type Model struct {
	script []Call
	mux    *http.ServeMux

	mu      sync.Mutex
	heard   []byte   // every byte that agents sent
	offered []string // the names of the tools of Yett, as the host gives them
	results []Result // of the longest conversation
}

// New returns a stand-in that plays a script.
func New(script ...Call) *Model {
	m := &Model{script: script, mux: http.NewServeMux()}
	m.mux.HandleFunc("POST /v1/messages", serve(m, anthropic))
	m.mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"input_tokens":10}`) })
	m.mux.HandleFunc("POST /v1/responses", serve(m, openai))
	m.mux.HandleFunc("POST /v1beta/models/{action}", serve(m, gemini))
	return m
}

// ServeHTTP implements http.Handler.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Heard returns every byte of every request's body.
func (m *Model) Heard() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.heard)
}

// Offered returns the tools of Yett that were offered, by the host's names.
func (m *Model) Offered() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.offered)
}

// Results returns what the tools answered, in order.
func (m *Model) Results() []Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.results)
}

// tool is a tool as a host offers it: a name, and with some hosts the
// namespace that it stands in.
type tool struct{ namespace, name string }

// turn is one request to a model, whichever API it came by.
type turn struct {
	model   string
	stream  bool
	tools   []tool
	results []Result
}

// reply is what the model says: a call, or if that is nil a sentence. id names
// the call.
type reply struct {
	id        string
	tool      *tool
	arguments map[string]any
}

// api reads a request and answers it.
type api struct {
	read  func(r *http.Request, body []byte) (turn, error)
	write func(w http.ResponseWriter, t turn, r reply)
}

func serve(m *Model, a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		t, err := a.read(r, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.write(w, t, m.answer(t, body))
	}
}

// answer notes a turn and says what comes next.
func (m *Model) answer(t turn, body []byte) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(append(m.heard, body...), '\n')
	for _, tool := range t.tools {
		if name := tool.full(); !slices.Contains(m.offered, name) && tool.yetts() {
			m.offered = append(m.offered, name)
		}
	}
	if len(t.results) > len(m.results) {
		m.results = t.results
	}
	n := len(t.results)
	if n >= len(m.script) {
		return reply{}
	}
	for _, tool := range t.tools {
		if next := m.script[n]; tool.yetts() && strings.HasSuffix(tool.name, next.Tool) {
			return reply{id: fmt.Sprintf("call_%d", n+1), tool: &tool, arguments: next.Arguments}
		}
	}
	return reply{}
}

func (t tool) full() string {
	if t.namespace == "" {
		return t.name
	}
	return t.namespace + "/" + t.name
}

// yetts tells Yett's tools from the host's own. Every host that is known puts
// the name of the server, which is yett, before the tool's.
func (t tool) yetts() bool { return strings.Contains(t.full(), "yett") }

// events begins a stream of server-sent events and returns what sends one; the
// type stands in the event's line too unless it is empty.
func events(w http.ResponseWriter) func(kind string, data map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	return func(kind string, data map[string]any) {
		if kind != "" {
			data["type"] = kind
			fmt.Fprintf(w, "event: %s\n", kind)
		}
		fmt.Fprintf(w, "data: %s\n\n", encode(data))
	}
}

// encode is JSON of what cannot fail.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// textOf reads a tool's output, which is a string or a list of blocks with
// texts, and else is left as it is.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var blocks []struct{ Text string }
	if json.Unmarshal(raw, &blocks) != nil {
		return string(raw)
	}
	var texts []string
	for _, b := range blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n")
}
