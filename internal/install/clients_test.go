package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestClientsTable is the lint of clients.toml.
func TestClientsTable(t *testing.T) {
	want := []string{"claude-code", "claude-desktop", "codex", "cursor", "gemini", "opencode", "vscode", "windsurf", "zed"}
	var have []string
	for _, c := range Clients() {
		have = append(have, c.ID)
		t.Run(c.ID, func(t *testing.T) { lintClient(t, c) })
	}
	if !slices.Equal(have, want) {
		t.Errorf("the clients are %v, want %v", have, want)
	}
}

func lintClient(t *testing.T, c Client) {
	if c.Name == "" || c.Restart == "" || strings.HasSuffix(c.Restart, ".") || len(c.Marks) == 0 {
		t.Error("a name, a way to restart it or a mark is missing")
	}
	for _, system := range []string{"linux", "macos"} {
		if len(c.Files[system]) == 0 {
			t.Errorf("no file on %s", system)
		}
		for _, below := range append(slices.Clone(c.Files[system]), c.Marks...) {
			if !filepath.IsLocal(below) || filepath.Clean(below) != below {
				t.Errorf("%q is no path below the home directory", below)
			}
		}
	}
	if (c.Project == "") != (c.ProjectSource == "") || c.Project != "" && !filepath.IsLocal(c.Project) {
		t.Errorf("a project's file %q, known from %q", c.Project, c.ProjectSource)
	}
	if c.Project != "" {
		lintSource(t, c.ProjectSource)
	}
	if _, err := regexp.Compile(c.Sandbox); err != nil || (c.Sandbox == "") != (c.SandboxSource == "") {
		t.Errorf("a sandbox by %q, known from %q: %v", c.Sandbox, c.SandboxSource, err)
	}
	if c.Sandbox != "" {
		lintSource(t, c.SandboxSource)
	}
	lintFormat(t, c.Format)
	if len(c.Files) != 2 || len(c.At) != 2 || c.At[1] != "yett" {
		t.Errorf("files %v, at %v", c.Files, c.At)
	}
	entry := c.entry(`/opt/"yett"/yett-mcp`)
	if !json.Valid([]byte(entry)) || strings.Count(c.Entry, "$shim") != 1 || !startsShim(entry) {
		t.Errorf("the entry starts no shim: %s", entry)
	}
	for _, no := range []string{"env", "environment"} {
		if _, there := member(entry, no); there {
			t.Errorf("the entry has %s", no)
		}
	}
	if args, there := member(entry, "args"); there && args != "[]" {
		t.Errorf("the entry has arguments: %s", args)
	}
	lintSource(t, c.Source)
	if (len(c.Allow) == 0) == (c.WhyNot == "") {
		t.Error("either a rule or a reason why there is none")
	}
	for _, r := range c.Allow {
		lintSource(t, r.Source)
		if (r.File == "") != (r.Format == "") || r.File != "" && !filepath.IsLocal(r.File) || !slices.Contains([]string{"member", "element"}, r.Into) ||
			!json.Valid([]byte(r.Value)) || len(r.At) == 0 || strings.Contains(strings.Join(r.At, ""), "$") {
			t.Errorf("a rule is not one: %+v", r)
		}
		if r.File != "" {
			lintFormat(t, r.Format)
		}
		if !strings.Contains(strings.Join(r.At, " ")+r.Value, "yett") {
			t.Errorf("a rule lets more than Yett's tools: %+v", r)
		}
	}
}

func lintFormat(t *testing.T, f Format) {
	if !slices.Contains([]Format{formatJSON, formatJSONC, formatLoose, formatTOML}, f) {
		t.Errorf("format %q", f)
	}
}

func lintSource(t *testing.T, s string) {
	if !regexp.MustCompile(`^https://[a-z0-9.]+\.[a-z]+/\S+$`).MatchString(s) {
		t.Errorf("source %q", s)
	}
}

// TestToolsAreThoseOfTheShim: a rule for each tool names the tools there are.
func TestToolsAreThoseOfTheShim(t *testing.T) {
	source, err := os.ReadFile("../shim/tools.go")
	if err != nil {
		t.Fatal(err)
	}
	var theirs []string
	for _, m := range regexp.MustCompile(`(?m)^\t\t\tname: "([a-z_]+)",$`).FindAllStringSubmatch(string(source), -1) {
		theirs = append(theirs, m[1])
	}
	if !slices.Equal(theirs, tools) {
		t.Errorf("yett-mcp has %v, the table names %v", theirs, tools)
	}
}

// TestClientsTableRefuses: a row that says something nobody reads is an error.
func TestClientsTableRefuses(t *testing.T) {
	for _, text := range []string{"[a]\nnmae = \"x\"\n", "[a]\nname = 1\n", "[a\n"} {
		if _, err := parseClients(text); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}
