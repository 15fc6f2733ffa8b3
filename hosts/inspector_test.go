//go:build hosts && linux

package hosts

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/yetttest"
)

// inspector runs the MCP inspector's command line for one method. It has no
// model: the person is the agent.
func inspector(t *testing.T, server []string, method ...string) *running {
	t.Helper()
	home := t.TempDir()
	config := filepath.Join(home, "mcp.json")
	writeJSON(t, config, map[string]any{"mcpServers": map[string]any{"yett": map[string]any{
		"type": "stdio", "command": server[0], "args": server[1:]}}})
	command := []string{node(), filepath.Join(modules(), "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"),
		"--cli", "--config", config, "--server", "yett", "--method"}
	return launch(t, home, append(command, method...), nil)
}

// TestHosts_InspectorSchemas: the inspector finds nothing in the tools' schemas
// that some host could not take.
func TestHosts_InspectorSchemas(t *testing.T) {
	r := inspector(t, yettMCP(yetttest.New(t)), "tools/list", "--strict")
	r.ends()
	for _, name := range []string{"get_operation", "http_request", "list_access", "read_result", "request_access", "ssh_copy", "ssh_run"} {
		if !strings.Contains(string(r.out.bytes()), `"name": "`+name+`"`) {
			t.Errorf("the inspector does not list %s:\n%s", name, r.out.bytes())
		}
	}
}

// TestHosts_InspectorCall: the inspector asks for access, with the answer of a
// person.
func TestHosts_InspectorCall(t *testing.T) {
	b, _ := upstream(t)
	r := inspector(t, yettMCP(b), "tools/call", "--tool-name", "request_access",
		"--tool-arg", `capabilities=["http:demo.read"]`, "purpose=read the invoices of March", "wait_ms=45000")
	card := waitCard(t, b, r)
	seen := look(t, b, r, card)
	golden(t, "inspector.card.json", seen.names.document(t, card.Card))
	shows(t, b, card)
	b.Must("approve", card.ApprovalID, "--once", "--digest", card.CardDigest)
	r.ends()
	if !strings.Contains(string(r.out.bytes()), "granted: http:demo.read") {
		t.Errorf("the inspector printed\n%s", r.out.bytes())
	}
	ended(t, b, seen.session, "shim_exited", "agent_exited", "channel_closed")
	golden(t, "inspector.seen.txt", seen.String())
}

// TestHosts_InspectorBegins: how the inspector begins.
func TestHosts_InspectorBegins(t *testing.T) {
	server, heard := tapped(t, yettMCP(yetttest.New(t)))
	r := inspector(t, server, "tools/call", "--tool-name", "list_access")
	<-r.done
	if text := string(r.out.bytes()); !strings.Contains(text, "unavailable") {
		t.Errorf("the inspector printed\n%s", text)
	}
	golden(t, "inspector.begins.txt", beginning(heard()))
}
