package install

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

var update = flag.Bool("update", false, "write the golden files anew")

// befores are configurations as clients and people write them, by where they
// lie.
var befores = []struct{ id, file, fixture string }{
	{"claude-code", ".claude.json", "claude-code.other.json"},
	{"claude-desktop", ".config/Claude/claude_desktop_config.json", "claude-desktop.json"},
	{"codex", ".codex/config.toml", "codex.toml"},
	{"codex", ".codex/config.toml", "codex.other.toml"},
	{"cursor", ".cursor/mcp.json", "cursor.json"},
	{"gemini", ".gemini/settings.json", "gemini.json"},
	{"gemini", ".gemini/settings.json", "gemini.other.json"},
	{"opencode", ".config/opencode/opencode.json", "opencode.json"},
	{"vscode", ".config/Code/User/mcp.json", "vscode.json"},
	{"windsurf", ".codeium/windsurf/mcp_config.json", "windsurf.json"},
	{"zed", ".config/zed/settings.json", "zed.json"},
}

// TestF1_EachClient: the entry stands in each client's file, nothing else has
// changed, a second time changes nothing, and taking it away gives back every
// byte. The golden files are what a person reviews.
func TestF1_EachClient(t *testing.T) {
	for _, b := range befores {
		for _, allow := range []bool{false, true} {
			c := client(t, b.id)
			if allow && len(c.Allow) == 0 {
				continue
			}
			name := strings.TrimSuffix(b.fixture, filepath.Ext(b.fixture))
			if allow {
				name += ".allow"
			}
			t.Run(name, func(t *testing.T) {
				p := home(t)
				before := fixture(t, "before/"+b.fixture)
				path := lay(t, p, b.file, before)
				settings := lay(t, p, ".claude/settings.json", fixture(t, "before/claude-settings.json"))
				permissions := lay(t, p, ".cursor/permissions.json", fixture(t, "before/cursor-permissions.json"))
				plan := connect(t, p, b.id, Options{Allow: allow})
				var difference strings.Builder
				for _, f := range plan.Files {
					difference.WriteString(strings.ReplaceAll(f.Difference(), p.Home, "/home/ada"))
				}
				golden(t, name+".diff", difference.String())
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
					t.Errorf("the mode has changed: %v, %v", info.Mode(), err)
				}
				if again := connect(t, p, b.id, Options{Allow: allow}); again.Changed() {
					t.Errorf("a second time changes\n%s", again.Files[0].Difference())
				}
				disconnect(t, p, b.id)
				for at, want := range map[string]string{path: before, settings: fixture(t, "before/claude-settings.json"),
					permissions: fixture(t, "before/cursor-permissions.json")} {
					if got := read(t, at); got != want {
						t.Errorf("%s is not what it was:\n%s", at, got)
					}
				}
			})
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, path); got != want {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

// TestF1_AsTheClientsWrite: Claude Code, Codex and Gemini CLI write an entry
// themselves; ours means the same to them, and theirs needs no change.
func TestF1_AsTheClientsWrite(t *testing.T) {
	for _, c := range []struct{ id, file, before, written string }{
		{"claude-code", ".claude.json", "before/claude-code.other.json", "written/claude-code.other.json"},
		{"codex", ".codex/config.toml", "before/codex.other.toml", "written/codex.other.toml"},
		{"gemini", ".gemini/settings.json", "before/gemini.other.json", "written/gemini.other.json"},
	} {
		p := home(t)
		path := lay(t, p, c.file, fixture(t, c.before))
		connect(t, p, c.id, Options{})
		ours, theirs := decode(t, path, read(t, path)), decode(t, path, fixture(t, c.written))
		if c.id == "claude-code" { // writes an empty environment
			servers := theirs["mcpServers"].(map[string]any)
			delete(servers["yett"].(map[string]any), "env")
		}
		if !reflect.DeepEqual(ours, theirs) {
			t.Errorf("%s: ours is\n%v\ntheirs is\n%v", c.id, ours, theirs)
		}
		if c.id == "codex" && read(t, path) != fixture(t, c.written) {
			t.Errorf("codex writes other bytes:\n%s", read(t, path))
		}
		for _, written := range []string{c.written, strings.Replace(c.written, ".other", "", 1)} {
			q := home(t)
			lay(t, q, c.file, fixture(t, written))
			if plan := connect(t, q, c.id, Options{}); plan.Changed() {
				t.Errorf("%s: what the client wrote is changed:\n%s", c.id, plan.Files[0].Difference())
			}
		}
	}
}

func decode(t *testing.T, path, text string) map[string]any {
	t.Helper()
	var v map[string]any
	var err error
	if strings.HasSuffix(path, ".toml") {
		err = toml.Unmarshal([]byte(text), &v)
	} else {
		err = json.Unmarshal([]byte(text), &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}
