package install

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

// Format is how a client reads its file.
type Format string

const (
	formatJSON  Format = "json"
	formatJSONC Format = "jsonc"
	formatLoose Format = "jsonc,"
	formatTOML  Format = "toml"
)

func (f Format) comments() bool       { return f == formatJSONC || f == formatLoose }
func (f Format) trailingCommas() bool { return f == formatLoose }

// Client is one row of clients.toml.
type Client struct {
	ID      string              `toml:"-"`
	Name    string              `toml:"name"`
	Files   map[string][]string `toml:"files"`
	Marks   []string            `toml:"marks"`
	Project string              `toml:"project"` // below a project; empty: none

	Sandbox string `toml:"sandbox"`

	ProjectSource string `toml:"project_source"`
	SandboxSource string `toml:"sandbox_source"`

	Format  Format   `toml:"format"`
	At      []string `toml:"at"`
	Entry   string   `toml:"entry"`
	Restart string   `toml:"restart"`
	Source  string   `toml:"source"`
	Seen    string   `toml:"seen"`
	Allow   []Rule   `toml:"allow"`
	WhyNot  string   `toml:"why_not"`
}

// Rule lets a client call Yett's tools without asking by itself.
type Rule struct {
	File   string   `toml:"file"` // empty: the entry's
	Format Format   `toml:"format"`
	At     []string `toml:"at"`
	Into   string   `toml:"into"`
	OnlyIf string   `toml:"only_if"`
	Value  string   `toml:"value"`
	Source string   `toml:"source"`
}

// tools are those of yett-mcp, which are fixed for each release.
var tools = []string{"get_operation", "http_request", "list_access", "read_result", "request_access", "ssh_copy", "ssh_run"}

//go:embed clients.toml
var clientsText string

// clients is the table. The text is part of this program and tested: it
// parses, or nothing here works.
var clients = sync.OnceValue(func() map[string]Client {
	table, err := parseClients(clientsText)
	if err != nil {
		panic(err)
	}
	return table
})

func parseClients(text string) (map[string]Client, error) {
	table := map[string]Client{}
	if err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&table); err != nil {
		return nil, fmt.Errorf("clients: %w", err)
	}
	for id, c := range table {
		c.ID = id
		var rules []Rule
		for _, r := range c.Allow {
			rules = append(rules, r.perTool()...)
		}
		c.Allow = rules
		table[id] = c
	}
	return table, nil
}

// perTool is one rule for each tool, if the rule names single ones.
func (r Rule) perTool() []Rule {
	last := len(r.At) - 1
	if last < 0 || !strings.Contains(r.At[last], "$tool") {
		return []Rule{r}
	}
	var rules []Rule
	for _, tool := range tools {
		one := r
		one.At = append(slices.Clone(r.At[:last]), strings.ReplaceAll(r.At[last], "$tool", tool))
		rules = append(rules, one)
	}
	return rules
}

// Clients are those that Yett knows, by id.
func Clients() []Client {
	var all []Client
	for _, id := range slices.Sorted(maps.Keys(clients())) {
		all = append(all, clients()[id])
	}
	return all
}

// ClientNamed is the client with this id.
func ClientNamed(id string) (Client, bool) {
	c, ok := clients()[id]
	return c, ok
}

// entry is the client's entry for a shim.
func (c Client) entry(shim string) string {
	inner := quote(shim)
	return strings.ReplaceAll(c.Entry, "$shim", inner[1:len(inner)-1])
}
