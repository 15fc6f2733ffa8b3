// Package preset is what is known beforehand of services that agents often act
// on: where their tokens are made, which scopes are enough, which place a token
// goes to, and which requests read and which write.
//
// A preset is one small TOML file in data, built into the program; its name is
// the file's. It is no policy: yett add makes the tables of an access file from
// it, shows them, and only the person's proof applies them. A preset cannot
// weaken what the person is asked: what writes is always asked for action by
// action, and no key of a preset changes that.
//
//	title, token, page, scopes, note   for the person
//	source        the service's document about how the token is sent
//	origin        the one place of the token; self_hosted: another may be given
//	kind          bearer (default) or header, then with header and prefix
//	[read]        methods, paths, query, budget of what is granted for a session
//	[write]       the same of what is asked for each time
//	[test]        a harmless request: method, path, query, headers, body, and in
//	              answer a text that a good answer has
//	host, commands   of the preset for SSH: its commands only look
//
// A preset without read and write asks the person for them.
package preset

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/yett-broker/yett/internal/action"
)

//go:embed data/*.toml
var files embed.FS

// Preset is one service.
type Preset struct {
	Name   string   `toml:"-"`
	Title  string   `toml:"title"`
	Token  string   `toml:"token"`  // what the service calls it
	Page   string   `toml:"page"`   // where it is made, as of this release
	Scopes []string `toml:"scopes"` // the least that is enough
	Note   string   `toml:"note"`
	Source string   `toml:"source"`

	Origin     string `toml:"origin"`
	SelfHosted bool   `toml:"self_hosted"`
	Kind       string `toml:"kind"`
	Header     string `toml:"header"`
	Prefix     string `toml:"prefix"`

	As    string `toml:"-"` // tells capabilities from earlier ones of the same credential
	Read  *Rules `toml:"read"`
	Write *Rules `toml:"write"`
	Test  *Test  `toml:"test"`

	Host     bool     `toml:"host"`
	Commands []string `toml:"commands"`
}

// Rules are what one HTTP capability allows.
type Rules struct {
	Methods []string `toml:"methods"`
	Paths   []string `toml:"paths"`
	Query   []string `toml:"query"`
	Budget  string   `toml:"budget"`
}

// Test is a request that changes nothing. A good answer has a status below 300,
// and Answer in its body.
type Test struct {
	Method  string            `toml:"method"`
	Path    string            `toml:"path"`
	Query   map[string]string `toml:"query"`
	Headers map[string]string `toml:"headers"`
	Body    string            `toml:"body"`
	Answer  string            `toml:"answer"`
	Command string            `toml:"command"`
}

// All returns the presets by name.
func All() ([]Preset, error) {
	entries, err := files.ReadDir("data")
	if err != nil {
		return nil, err
	}
	var all []Preset
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("data", e.Name()))
		if err != nil {
			return nil, err
		}
		p, err := parse(strings.TrimSuffix(e.Name(), ".toml"), text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Find returns the preset of a name.
func Find(name string) (p Preset, ok bool, err error) {
	all, err := All()
	if i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name }); i >= 0 {
		return all[i], true, err
	}
	return Preset{}, false, err
}

func parse(name string, text []byte) (Preset, error) {
	p := Preset{Name: name, Kind: "bearer"}
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("reading the preset %s: %w", name, err)
	}
	return p, nil
}

// PageAt is where the token is made for a service at origin: another place of a
// self-hosted service has its own page.
func (p Preset) PageAt(origin string) string {
	if rest, ok := strings.CutPrefix(p.Page, p.Origin+"/"); ok && p.SelfHosted && p.Origin != "" {
		return strings.TrimSuffix(origin, "/") + "/" + rest
	}
	return p.Page
}

// TestAction is the test as an action, under the capability that allows it.
func (p Preset) TestAction(name string) (capability string, in action.HTTPInput) {
	capability = WriteCapability(name)
	if p.Read != nil && slices.Contains(p.Read.Methods, p.Test.Method) {
		capability = ReadCapability(name)
	}
	in = action.HTTPInput{Method: p.Test.Method, Path: p.Test.Path, Headers: p.Test.Headers, Query: map[string][]string{}}
	for name, value := range p.Test.Query {
		in.Query[name] = []string{value}
	}
	if p.Test.Body != "" {
		in.Body = &p.Test.Body
	}
	return capability, in
}
