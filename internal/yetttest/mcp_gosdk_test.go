package yetttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolNames is the catalogue of this release.
var toolNames = []string{"get_operation", "http_request", "list_access", "read_result", "request_access", "ssh_copy", "ssh_run"}

// protocols are the versions of MCP with a handshake; the newest has none.
var protocols = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

const newestProtocol = "2026-07-28"

// mcpClient is a client library as a test drives it.
type mcpClient interface {
	tools() []mcpTool
	call(name string, arguments map[string]any) said
	elicited() int // questions that the library was asked to put to the person
}

type mcpTool struct {
	Name        string         `json:"name"`
	InputSchema map[string]any `json:"inputSchema"`
	Output      map[string]any `json:"outputSchema"`
}

// goSDK is the client of the Go SDK. The process of the test is the agent.
type goSDK struct {
	t    testing.TB
	s    *mcp.ClientSession
	asks atomic.Int64
}

func (b *Broker) startGoSDK(version string) *goSDK {
	b.T.Helper()
	g := &goSDK{t: b.T}
	c := mcp.NewClient(&mcp.Implementation{Name: "go-agent", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			g.asks.Add(1)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	})
	shim := exec.Command(Bin("yett-mcp"), "--home", b.Home)
	shim.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var err error
	if g.s, err = c.Connect(ctx, &mcp.CommandTransport{Command: shim}, &mcp.ClientSessionOptions{ProtocolVersion: version}); err != nil {
		b.T.Fatalf("connecting by %s: %v", version, err)
	}
	b.T.Cleanup(func() { g.s.Close() })
	return g
}

func (g *goSDK) elicited() int { return int(g.asks.Load()) }

func (g *goSDK) tools() (all []mcpTool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	r, err := g.s.ListTools(ctx, nil)
	must(g.t, err)
	for _, tool := range r.Tools {
		raw, err := json.Marshal(tool)
		must(g.t, err)
		var one mcpTool
		must(g.t, json.Unmarshal(raw, &one))
		all = append(all, one)
	}
	return all
}

func (g *goSDK) call(name string, arguments map[string]any) said {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	r, err := g.s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		g.t.Errorf("%s: %v", name, err)
		return said{}
	}
	if len(r.Content) != 1 {
		g.t.Errorf("%s: %d blocks", name, len(r.Content))
		return said{}
	}
	return said{r.Content[0].(*mcp.TextContent).Text, r.IsError}
}

// TestMCP_GoSDK: the whole job by the client of the Go SDK.
func TestMCP_GoSDK(t *testing.T) {
	w := startWork(t)
	g := w.b.startGoSDK(newestProtocol)
	if v := g.s.InitializeResult().ProtocolVersion; v != newestProtocol {
		t.Fatalf("speaks %s", v)
	}
	w.job(t, g)
}

// TestMCP_EveryProtocolVersion: each version that a client asks for is the one
// that is spoken, and tools work in it.
func TestMCP_EveryProtocolVersion(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	for _, version := range append(slices.Clone(protocols), newestProtocol) {
		g := b.startGoSDK(version)
		if v := g.s.InitializeResult().ProtocolVersion; v != version {
			t.Errorf("asked for %s, speaks %s", version, v)
		}
		if len(g.tools()) != len(toolNames) {
			t.Errorf("%s: %d tools", version, len(g.tools()))
		}
		g.call("list_access", map[string]any{}).wants(t, "none is granted", "http:demo.read")
	}
	for _, version := range protocols { // once more, by hand
		h := b.startShim()
		h.send(initialize(1, version))
		if r := h.await("1"); r.Error != nil || r.Result.ProtocolVersion != version {
			t.Errorf("initialize with %s: %+v", version, r)
		}
		h.send(initialized, request(2, "tools/list", "{}"))
		if n := len(h.await("2").Result.Tools); n != len(toolNames) {
			t.Errorf("%s: %d tools", version, n)
		}
		h.call("list_access", "{}").wants(t, "none is granted")
	}
	h := b.startShim()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"agent","version":"7"},"io.modelcontextprotocol/clientCapabilities":{}}`
	h.send(request(1, "server/discover", "{"+meta+"}"), request(2, "tools/call", `{"name":"list_access","arguments":{},`+meta+"}"))
	if r := h.await("1"); r.Error != nil || !slices.Contains(r.Result.SupportedVersions, newestProtocol) {
		t.Errorf("server/discover: %+v", r)
	}
	h.await("2").said(t).wants(t, "none is granted")
}

// work is a broker with something of every kind to do.
type work struct {
	b    *Broker
	up   *Upstream
	sshd sshdAt
	big  string
}

func startWork(t *testing.T) *work {
	w := &work{sshd: reachableSSHD(t)}
	var big strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&big, "line %d äöü\n", i)
	}
	w.big = big.String()
	w.up = StartUpstreamFunc(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+canary:
			rw.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/big":
			rw.Write([]byte(w.big))
		default:
			fmt.Fprintf(rw, "%s %s", r.Method, r.URL.Path)
		}
	})
	w.b = Start(t, w.up.Access()+sshAccess(w.sshd), "demo", canary, "key", string(w.sshd.ClientKey))
	return w
}

// sshAccess is an access file's part for a server.
func sshAccess(s sshdAt) string {
	return fmt.Sprintf(`
[credential.key]
kind = "ssh-key"

[host.web]
address = %q
user = %q
key = "key"
host_keys = [%q]

[capability."ssh:web.status"]
host = "web"
commands = ["echo *", "cat /nowhere"]
`, s.Address, s.User, s.HostKey)
}

// job is the whole job as an agent does it, with the person at the command line.
func (w *work) job(t *testing.T, c mcpClient) {
	t.Helper()
	checkCatalogue(t, c.tools())
	c.call("list_access", map[string]any{}).wants(t, "none is granted", `"http:demo.read"`, `"ssh:web.status"`, `"confirm":"each"`)
	c.call("http_request", map[string]any{"capability": "http:demo.read", "method": "GET", "path": "/v1/x"}).
		refused(t, "capability_not_granted", "request_access", "yett pending")

	capabilities := []string{"http:demo.read", "http:demo.each", "ssh:web.status"}
	asked := c.call("request_access", map[string]any{"capabilities": capabilities, "purpose": "to see that it works", "wait_ms": 1})
	asked.wants(t, "pending: ", "yett approve", "call request_access again")
	waiting := make(chan said)
	go func() { waiting <- c.call("request_access", map[string]any{"capabilities": capabilities}) }() // by the default wait
	w.approveAtTerminal(asked.session(t).Pending.ApprovalID, asked.tag(t), "to see that it works", "--for", "1h")
	(<-waiting).wants(t, "granted: ")
	if n := c.elicited(); n != 0 {
		t.Errorf("the host was asked %d times", n)
	}

	c.call("http_request", map[string]any{"capability": "http:demo.read", "method": "GET", "path": "/v1/x", "query": map[string]any{"a": []string{"1", "2"}}}).
		wants(t, "completed: HTTP 200", "GET /v1/x")
	c.call("http_request", map[string]any{"capability": "http:demo.read", "method": "POST", "path": "/v1/x"}).
		refused(t, "action_outside_capability", "yett access list")
	c.call("http_request", map[string]any{"capability": "http:demo.none", "method": "GET", "path": "/v1/x"}).
		refused(t, "capability_unknown", "yett access list")
	c.call("ssh_run", map[string]any{"capability": "ssh:web.status", "argv": []string{"echo", "hello"}}).
		wants(t, "exit status 0", "hello\n")
	c.call("ssh_run", map[string]any{"capability": "ssh:web.status", "command": "cat /nowhere"}).
		wants(t, "exit status 1", "/nowhere", "stdout: empty", "stderr (")
	c.call("ssh_run", map[string]any{"capability": "ssh:web.status", "command": "echo a; id"}).
		refused(t, "action_outside_capability")
	w.readBig(t, c)

	queued := c.call("http_request", map[string]any{"capability": "http:demo.each", "method": "POST", "path": "/each/x", "body": "hello", "wait_ms": 1})
	queued.wants(t, "queued: ", "nothing was executed", "get_operation")
	op := queued.operation(t)
	w.approveAtTerminal(op.Pending.ApprovalID, queued.tag(t), `"path":"/each/x"`)
	c.call("get_operation", map[string]any{"operation_id": op.OperationID}).wants(t, "completed: HTTP 200", op.OperationID, "POST /each/x")
	if got := w.up.Seen(); !slices.Equal(got, []string{"GET /v1/x?a=1&a=2", "GET /v1/big", "POST /each/x"}) {
		t.Errorf("the upstream saw %v", got)
	}
}

// approveAtTerminal approves a card as a person does who compares the words and
// looks for what the card must say.
func (w *work) approveAtTerminal(approvalID, tag, says string, how ...string) {
	w.b.T.Helper()
	var cards []Card
	w.b.Must("pending", "--json").JSON(w.b.T, &cards)
	for _, c := range cards {
		if c.ApprovalID != approvalID {
			continue
		}
		var shown struct{ Tag string }
		json.Unmarshal(c.Card, &shown)
		if shown.Tag != tag || !strings.Contains(string(c.Card), says) {
			w.b.T.Fatalf("the card says %q and not %q, or lacks %s:\n%s", shown.Tag, tag, says, c.Card)
		}
		w.b.Must(append([]string{"approve", approvalID, "--digest", c.CardDigest}, how...)...)
		return
	}
	w.b.T.Fatalf("there is no card %s: %v", approvalID, cards)
}

// readBig reads a body that does not stand in the result, piece by piece.
func (w *work) readBig(t *testing.T, c mcpClient) {
	t.Helper()
	r := c.call("http_request", map[string]any{"capability": "http:demo.read", "method": "GET", "path": "/v1/big"}).
		wants(t, "completed: HTTP 200", "read_result")
	var res struct {
		Result struct {
			BodyRef string `json:"body_ref"`
		}
	}
	r.decode(t, &res)
	var whole strings.Builder
	next := regexp.MustCompile(`Next: read_result with offset (\d+)\.`)
	for offset := 0; ; {
		piece := c.call("read_result", map[string]any{"body_ref": res.Result.BodyRef, "offset": offset, "limit": 100_000})
		_, text, _ := strings.Cut(piece.text, res.Result.BodyRef+": ")
		status, body, _ := strings.Cut(text, "\n")
		whole.WriteString(body)
		m := next.FindStringSubmatch(status)
		if m == nil {
			break
		}
		fmt.Sscan(m[1], &offset)
	}
	if whole.String() != w.big {
		t.Fatalf("read %d bytes of %d", whole.Len(), len(w.big))
	}
}

// checkCatalogue is M01 and M02 over the tools that a library has taken.
func checkCatalogue(t *testing.T, tools []mcpTool) {
	t.Helper()
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
		if !regexp.MustCompile(`^[a-z_]{1,39}$`).MatchString(tool.Name) {
			t.Errorf("M01: the name %q does not survive every host", tool.Name)
		}
		if tool.InputSchema["type"] != "object" || tool.Output != nil {
			t.Errorf("M02: %s: %v %v", tool.Name, tool.InputSchema["type"], tool.Output)
		}
		for _, combinator := range []string{"oneOf", "anyOf", "allOf", "not", "if", "$ref", "enum"} {
			if _, has := tool.InputSchema[combinator]; has {
				t.Errorf("M02: %s has %s at its root", tool.Name, combinator)
			}
		}
	}
	if !slices.Equal(names, toolNames) {
		t.Errorf("M01: the catalogue is %v", names)
	}
}
