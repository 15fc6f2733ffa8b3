package install

import (
	"errors"
	"strings"
	"testing"
)

// TestTOMLRemove: the entry goes with the tables that Codex puts below it, and
// comments of what follows stay with that.
func TestTOMLRemove(t *testing.T) {
	for before, after := range map[string]string{
		"[mcp_servers.yett]\ncommand = \"yett-mcp\"\n":                       "",
		"a = 1\n\n[mcp_servers.yett]\ncommand = \"yett-mcp\"\n":              "a = 1\n",
		"[mcp_servers.yett]\ncommand = \"yett-mcp\"\n\n# next\n[b]\nc = 1\n": "# next\n[b]\nc = 1\n",
		"a = 1\n\n[mcp_servers.yett]\ncommand = \"yett-mcp\"\n\n[mcp_servers.yett.tools.ssh_run]\napproval_mode = \"approve\"\n\n[b]\nc = '''\n# x\n'''\n": "a = 1\n\n[b]\nc = '''\n# x\n'''\n",
		"[b]\n\n[mcp_servers.\"yett\"] # ours\ncommand = \"yett-mcp\"\nargs = [\n  # none\n]\n[mcp_servers.other]\ncommand = \"x\"\n":                      "[b]\n[mcp_servers.other]\ncommand = \"x\"\n",
		"a = 1\r\n\r\n[mcp_servers.yett]\r\ncommand = \"yett-mcp\"\r\n\r\n[b]\r\n":                                                                         "a = 1\r\n\r\n[b]\r\n",
	} {
		p := home(t)
		path := lay(t, p, ".codex/config.toml", before)
		disconnect(t, p, "codex")
		if got := read(t, path); got != after {
			t.Errorf("%q became\n%q, want\n%q", before, got, after)
		}
	}
}

// TestTOMLForms: where no table can follow, or the entry has no header, nothing
// is guessed.
func TestTOMLForms(t *testing.T) {
	for _, text := range []string{
		"mcp_servers = { other = { command = \"x\" } }\n",
		"mcp_servers = 1\n",
		"[[mcp_servers]]\ncommand = \"x\"\n",
		"[mcp_servers]\nyett = { command = \"/old/yett-mcp\" }\n",
	} {
		p := home(t)
		path := lay(t, p, ".codex/config.toml", text)
		err := refused(t, p, "codex", Options{})
		var syntax *SyntaxError
		if !errors.As(err, &syntax) && !strings.Contains(err.Error(), "header") && !strings.Contains(err.Error(), "table") || read(t, path) != text {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Dotted keys are keys like others.
	p := home(t)
	path := lay(t, p, ".codex/config.toml", "mcp_servers.yett.command = '/old/yett-mcp'\n")
	connect(t, p, "codex", Options{})
	if got := read(t, path); got != "mcp_servers.yett.command = \""+shim+"\"\n" {
		t.Errorf("it became %q", got)
	}
}
