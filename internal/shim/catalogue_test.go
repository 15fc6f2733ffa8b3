//go:build linux

package shim

import (
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var eras = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

// liveTools asks the real program for its catalogue as a client of an era.
func liveTools(t *testing.T, era string) []*mcp.Tool {
	t.Helper()
	cmd := exec.Command(shimPath())
	cmd.Env = []string{}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "7"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: era})
	if err != nil {
		t.Fatalf("connecting by %s: %v", era, err)
	}
	t.Cleanup(func() { session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != era {
		t.Errorf("asked for protocol %s, got %s", era, got)
	}
	res, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatalf("listing tools by %s: %v", era, err)
	}
	return res.Tools
}

var toolName = regexp.MustCompile(`^[a-z_]{1,39}$`)

func TestM01_ToolNamesSurviveEveryHost(t *testing.T) {
	for _, era := range eras {
		var names []string
		for _, tool := range liveTools(t, era) {
			names = append(names, tool.Name)
			if !toolName.MatchString(tool.Name) {
				t.Errorf("%s: name %q", era, tool.Name)
			}
			if full := "mcp__yett__" + tool.Name; len(full) > 64 {
				t.Errorf("%s: %q has %d characters with a host's prefix", era, full, len(full))
			}
			if strings.TrimSpace(tool.Description) == "" {
				t.Errorf("%s: %s has no description", era, tool.Name)
			}
		}
		want := []string{"get_operation", "http_request", "list_access", "read_result", "request_access", "ssh_copy", "ssh_run"}
		if !slices.Equal(names, want) {
			t.Errorf("%s: tools %q, want %q", era, names, want)
		}
	}
}

func TestM02_SchemasArePlainObjects(t *testing.T) {
	for _, tool := range liveTools(t, "2025-11-25") {
		lintSchema(t, tool.Name+" input", tool.InputSchema)
		if tool.OutputSchema != nil {
			lintSchema(t, tool.Name+" output", tool.OutputSchema)
		}
	}
}

func lintSchema(t *testing.T, where string, schema any) {
	t.Helper()
	root, ok := schema.(map[string]any)
	if !ok || root["type"] != "object" {
		t.Errorf("%s: the root is not type object: %v", where, schema)
		return
	}
	properties, ok := root["properties"].(map[string]any)
	if !ok {
		t.Errorf("%s: no properties", where)
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf", "not", "if", "enum", "$ref", "$defs"} {
		if _, has := root[word]; has {
			t.Errorf("%s: %s at the root", where, word)
		}
	}
	for name, p := range properties {
		property, ok := p.(map[string]any)
		if _, one := property["type"].(string); !ok || !one {
			t.Errorf("%s: %s has no single type", where, name)
		}
		if d, _ := property["description"].(string); d == "" {
			t.Errorf("%s: %s has no description", where, name)
		}
		if property["type"] == "array" && property["items"] == nil {
			t.Errorf("%s: array %s without items", where, name)
		}
	}
	required, _ := root["required"].([]any)
	for _, r := range required {
		if _, ok := properties[r.(string)]; !ok {
			t.Errorf("%s: requires %v, which it does not have", where, r)
		}
	}
}

// The bounds and examples of a schema are those of the tool's own kind.
func TestSchemasSayWhatIsTaken(t *testing.T) {
	for _, tool := range tools() {
		var schema struct {
			Properties map[string]struct {
				Description      string
				Minimum, Maximum *int
			}
		}
		must(t, json.Unmarshal([]byte(tool.schema), &schema))
		example := schema.Properties["capability"].Description
		timeout := schema.Properties["timeout_ms"]
		switch tool.name {
		case "http_request":
			wants(t, example, "example http:")
		case "ssh_run", "ssh_copy":
			wants(t, example, "example "+map[string]string{"ssh_run": "ssh:", "ssh_copy": "ssh-copy:"}[tool.name])
			wants(t, timeout.Description, "default 60000")
			if timeout.Maximum == nil || *timeout.Maximum != 600_000 {
				t.Errorf("timeout_ms: %+v", timeout)
			}
		}
	}
}

// The lint itself must see what it is for.
func TestM02_LintSeesCombinators(t *testing.T) {
	for _, bad := range []string{
		`{"type":"object","properties":{},"anyOf":[{"required":["a"]}]}`,
		`{"properties":{}}`,
		`{"type":"object"}`,
		`{"type":"object","properties":{"a":{}}}`,
		`{"type":"object","properties":{},"required":["a"]}`,
	} {
		var schema map[string]any
		must(t, json.Unmarshal([]byte(bad), &schema))
		probe := &testing.T{}
		lintSchema(probe, "probe", schema)
		if !probe.Failed() {
			t.Errorf("the lint passes %s", bad)
		}
	}
}

// What a schema names is what the decoder takes, and nothing else.
func TestM02_SchemaAndDecoderAgree(t *testing.T) {
	for _, tool := range tools() {
		var schema struct {
			Properties map[string]any
			Required   []string
		}
		must(t, json.Unmarshal([]byte(tool.schema), &schema))
		l := newLink("", "test", stdioGuard{})
		l.close("there is no broker in this test")
		unknown := tool.run(context.Background(), &call{link: l, arguments: json.RawMessage(`{"no_such_argument":1}`)})
		said := unknown.Content[0].(*mcp.TextContent).Text
		if !unknown.IsError || !strings.Contains(said, `no argument "no_such_argument"`) {
			t.Errorf("%s: unknown argument: %s", tool.name, said)
		}
		_, list, _ := strings.Cut(strings.SplitN(said, "\n", 2)[0], "known are ")
		known := strings.Split(strings.TrimSuffix(list, "."), ", ")
		known = slices.DeleteFunc(known, func(s string) bool { return s == "" })
		slices.Sort(known)
		var named []string
		for name := range schema.Properties {
			named = append(named, name)
		}
		slices.Sort(named)
		if !slices.Equal(known, named) {
			t.Errorf("%s: the schema names %q, the decoder knows %q", tool.name, named, known)
		}
		for _, r := range schema.Required {
			if !strings.Contains(missing(t, tool, schema.Required, r), r+" is missing") {
				t.Errorf("%s: without %s: %s", tool.name, r, missing(t, tool, schema.Required, r))
			}
		}
	}
}

// missing calls a tool with every required argument but one.
func missing(t *testing.T, tool tool, required []string, without string) string {
	t.Helper()
	arguments := map[string]any{}
	for _, r := range required {
		if r == "capabilities" {
			arguments[r] = []string{"x"}
		} else {
			arguments[r] = "x"
		}
	}
	delete(arguments, without)
	b, err := json.Marshal(arguments)
	must(t, err)
	l := newLink("", "test", stdioGuard{})
	l.close("there is no broker in this test")
	return tool.run(context.Background(), &call{link: l, arguments: b}).Content[0].(*mcp.TextContent).Text
}
