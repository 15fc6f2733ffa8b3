package preset

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
)

func presets(t *testing.T) []Preset {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 11 {
		t.Fatalf("only %d presets were found", len(all))
	}
	return all
}

// place is an origin for a preset: its own, or one that a person would give.
func (p Preset) place() string {
	if p.Origin == "" {
		return "https://self-hosted.example"
	}
	return p.Origin
}

// TestPresetsAreGood: every preset makes tables that an access file takes, for
// one https origin, with nothing but reading granted for a session.
func TestPresetsAreGood(t *testing.T) {
	for _, p := range presets(t) {
		if p.Title == "" || p.Token == "" || p.Page == "" || len(p.Scopes) == 0 {
			t.Errorf("%s does not say what it is, where its token is made and what is enough", p.Name)
		}
		if p.Host {
			continue
		}
		if u, err := url.Parse(p.place()); err != nil || u.Scheme != "https" || u.Path != "" {
			t.Errorf("%s: origin %s", p.Name, p.place())
		}
		if p.Origin == "" && !p.SelfHosted {
			t.Errorf("%s has no origin and takes none", p.Name)
		}
		if p.Read == nil && p.Write == nil {
			if p.Name != "http" {
				t.Errorf("%s allows nothing", p.Name)
			}
			continue
		}
		if u, err := url.Parse(p.Source); err != nil || u.Scheme != "https" || u.Path == "" {
			t.Errorf("%s: where it is known from: %q", p.Name, p.Source)
		}
		policy, err := access.Parse(p.Tables(p.Name, p.place(), false))
		if err != nil {
			t.Errorf("%s:\n%v\n%s", p.Name, err, p.Tables(p.Name, p.place(), false))
			continue
		}
		if len(policy.Credentials()) != 1 || p.Write == nil {
			t.Errorf("%s: %+v", p.Name, policy.Credentials())
		}
		for _, c := range policy.Capabilities() {
			lint(t, p, c)
		}
		if p.Read == nil && p.Note == "" {
			t.Errorf("%s does not say why nothing of it can only be read", p.Name)
		}
	}
}

// lint holds what a preset may never do.
func lint(t *testing.T, p Preset, c *access.Capability) {
	t.Helper()
	reads := []string{"GET", "HEAD"}
	switch c.Name {
	case ReadCapability(p.Name):
		if c.Confirm != access.ConfirmSession || c.Budget == nil || slices.ContainsFunc(c.Methods, func(m string) bool { return !slices.Contains(reads, m) }) {
			t.Errorf("%s: %s does more than read, or without a budget: %+v", p.Name, c.Name, c)
		}
	case WriteCapability(p.Name):
		if c.Confirm != access.ConfirmEach || slices.Contains(c.Methods, "DELETE") {
			t.Errorf("%s: %s is not asked for each time, or deletes: %+v", p.Name, c.Name, c)
		}
	default:
		t.Errorf("%s has a capability %s", p.Name, c.Name)
	}
	for _, path := range c.Paths {
		if first := strings.Split(path, "/")[1]; strings.Contains(first, "*") {
			t.Errorf("%s: %s covers everything by %s", p.Name, c.Name, path)
		}
	}
}

// TestPresetsTestHarmlessly: each preset has a test, which its own tables allow
// and which reads: by its method, or by what it says where all of an API is one
// path.
func TestPresetsTestHarmlessly(t *testing.T) {
	for _, p := range presets(t) {
		if p.Name == "http" {
			continue
		}
		if p.Test == nil {
			t.Errorf("%s has no test", p.Name)
			continue
		}
		if p.Host {
			if !slices.Contains(p.Commands, p.Test.Command) || strings.ContainsAny(p.Test.Command, "*;|&") {
				t.Errorf("%s: the test %q is not one of its commands", p.Name, p.Test.Command)
			}
			continue
		}
		policy, err := access.Parse(p.Tables(p.Name, p.place(), false))
		if err != nil {
			t.Fatal(err)
		}
		name, in := p.TestAction(p.Name)
		h, refusal := action.NewHTTP(in)
		if refusal != nil {
			t.Errorf("%s: %v", p.Name, refusal)
			continue
		}
		d := policy.Decide(func(string) bool { return true }, action.Request{Capability: name, HTTP: h})
		if !d.Allowed {
			t.Errorf("%s: the test is outside of %s: %s", p.Name, name, d.Detail)
		}
		if p.Test.Method != "GET" && !strings.HasPrefix(p.Test.Body, `{"query":"query `) {
			t.Errorf("%s: the test is no reading request: %+v", p.Name, p.Test)
		}
	}
}

// TestPresetOfAHost: the commands of the preset look, and those of the person
// are asked for each time.
func TestPresetOfAHost(t *testing.T) {
	p, ok, err := Find("ssh")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINsPSYGVCxI0+n4GzsP0mWf6nh359vYopHS9tKRpG6LK"
	s := Server{Name: "web1", Address: "web1.example.net:22", User: "deploy", HostKeys: []string{key}, Look: p.Commands, Run: []string{`echo "a b"`, "*"}}
	policy, err := access.Parse(s.Tables())
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Tables())
	}
	look, _ := policy.Capability(LookCapability("web1"))
	run, _ := policy.Capability(RunCapability("web1"))
	if look.Confirm != access.ConfirmSession || run.Confirm != access.ConfirmEach || !slices.Equal(run.Commands, s.Run) {
		t.Errorf("%+v %+v", look, run)
	}
	s.Look, s.Run = []string{"*"}, nil
	if _, err := access.Parse(s.Tables()); err == nil {
		t.Error("a wildcard over everything is granted for a session")
	}
}

// TestPresetsAreRead: a key that is not known is an error, as is a file that is
// none.
func TestPresetsAreRead(t *testing.T) {
	for _, text := range []string{"titel = \"x\"\n", "[read]\nconfirm = \"session\"\n", "[write]\nconfirm = \"session\"\n", "title = \n"} {
		if _, err := parse("x", []byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if _, ok, err := Find("nothing"); ok || err != nil {
		t.Error(ok, err)
	}
}

// hostile are words that would say something else in the file, were they not
// quoted.
var hostile = []string{"a", `a"`, `a" # `, "a\\", "a\n[capability.\"http:x\"]", "a\x7f", "\xff", "ü\u2028", "'''", "a\x00b", `x", "/v2`}

// keepsWords: what a person types as a name, an origin or a path never ends its
// string.
func keepsWords(t *testing.T, name, origin, path string) {
	p := Preset{Kind: "bearer", Read: &Rules{Methods: []string{"GET"}, Paths: []string{path}}}
	policy, err := access.Parse(p.Tables(name, origin, false))
	if err != nil {
		return
	}
	credentials, capabilities := policy.Credentials(), policy.Capabilities()
	if len(credentials) != 1 || len(capabilities) != 1 || credentials[0].Name != name || capabilities[0].Name != ReadCapability(name) ||
		!slices.Equal(capabilities[0].Paths, []string{path}) {
		t.Errorf("%q %q %q became\n%s", name, origin, path, p.Tables(name, origin, false))
	}
}

func TestTablesKeepWords(t *testing.T) {
	for _, word := range hostile {
		keepsWords(t, word, "https://a.example", "/v1")
		keepsWords(t, "a", word, "/v1")
		keepsWords(t, "a", "https://a.example", word)
		keepsWords(t, "a", "https://a.example", "/v1/"+word)
	}
}

func FuzzTables(f *testing.F) {
	for _, word := range hostile {
		f.Add(word, word, word)
		f.Add("a", "https://a.example", "/v1/"+word)
	}
	f.Fuzz(keepsWords)
}

// TestPageOfASelfHostedService: its own, where the page is one of the service's.
func TestPageOfASelfHostedService(t *testing.T) {
	for name, want := range map[string]string{
		"gitlab":  "https://git.example/-/user_settings/personal_access_tokens",
		"github":  "https://github.com/settings/personal-access-tokens",
		"grafana": "Administration, Users and access, Service accounts",
	} {
		p, ok, err := Find(name)
		if got := p.PageAt("https://git.example"); !ok || err != nil || got != want {
			t.Errorf("%s: %q, %v %v", name, got, ok, err)
		}
	}
}
