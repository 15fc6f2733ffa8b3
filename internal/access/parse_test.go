package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	keyB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICAhIiMkJSYnKCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/"
)

// good is the example of the design, with what else a file may say.
const good = `
[credential.billing]
kind   = "bearer"
origin = "https://API.Billing.Example."

[credential.deploy-key]
kind = "ssh-key"

[credential.dev]
kind     = "bearer"
origin   = "http://intranet.example:8080"
insecure = true
private  = true

[capability."http:billing.read"]
credential = "billing"
methods    = ["GET", "HEAD"]
paths      = ["/v1/invoices", "/v1/invoices/**"]
budget     = "300/h"

[capability."http:dev.all"]
credential = "dev"
methods = ["GET", "PROPFIND"]
paths = ["/**"]
query = []
confirm = "each"
repeat = true

[host.web1]
address   = "web1.example.net:22"
user      = "deploy"
key       = "deploy-key"
host_keys = ["` + keyA + ` a comment"]

[host.web2]
address   = "[2001:db8::1]:2222"
user      = "deploy"
key       = "deploy-key"
host_keys = [
  "` + keyA + `",
  "` + keyB + `",
]

[capability."ssh:web1.status"]
host     = "web1"
commands = ["uptime", "systemctl status *"]
confirm  = "session"
`

func mustParse(t *testing.T, file string) *Policy {
	t.Helper()
	p, err := Parse([]byte(file))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return p
}

// wantProblem parses a file that must have exactly one problem.
func wantProblem(t *testing.T, file string, line int, key, message string) {
	t.Helper()
	p, err := Parse([]byte(file))
	var problems Problems
	if !errors.As(err, &problems) || p != nil {
		t.Errorf("Parse = %v, %v; want a problem\n%s", p, err, file)
		return
	}
	if len(problems) != 1 || problems[0].Line != line || problems[0].Key != key || !strings.Contains(problems[0].Message, message) {
		t.Errorf("problems:\n%v\nwant line %d: %s: …%s…", problems, line, key, message)
	}
}

func TestParse(t *testing.T) {
	p := mustParse(t, good)
	want := []Declared{
		{"billing", "bearer", "https://api.billing.example:443"},
		{"deploy-key", "ssh-key", "deploy@[2001:db8::1]:2222,deploy@web1.example.net:22"},
		{"dev", "bearer", "http://intranet.example:8080"},
	}
	if got := p.Declared(); !slices.Equal(got, want) {
		t.Errorf("declared %v\nwant     %v", got, want)
	}
	var names []string
	for _, c := range p.Capabilities() {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"http:billing.read", "http:dev.all", "ssh:web1.status"}) {
		t.Errorf("capabilities %v", names)
	}
	c, _ := p.Capability("http:billing.read")
	if c.Kind != action.KindHTTP || c.Credential != "billing" || c.Confirm != ConfirmSession || c.Query != nil || c.Repeat ||
		*c.Budget != (Budget{300, time.Hour}) || c.Budget.String() != "300/h" {
		t.Errorf("%+v", c)
	}
	c, _ = p.Capability("http:dev.all")
	if c.Confirm != ConfirmEach || c.Query == nil || len(c.Query) != 0 || !c.Repeat || c.Budget != nil {
		t.Errorf("%+v", c)
	}
	c, _ = p.Capability("ssh:web1.status")
	if c.Kind != action.KindSSH || c.Host != "web1" || len(c.Commands) != 2 {
		t.Errorf("%+v", c)
	}
	dev, _ := p.Credential("dev")
	if !dev.Insecure || !dev.Private || dev.Origin.Loopback() {
		t.Errorf("%+v", dev)
	}
	web2, _ := p.Host("web2")
	if !slices.Equal(web2.HostKeys, []string{keyA, keyB}) || !web2.Private || web2.Address != (Address{"2001:db8::1", 2222}) {
		t.Errorf("%+v", web2)
	}
	if web1, _ := p.Host("web1"); web1.HostKeys[0] != keyA || web1.Private {
		t.Errorf("%+v", web1)
	}
	if _, ok := p.Capability("http:billing"); ok {
		t.Error("a capability that is not there was found")
	}
}

func TestPolicyDoesNotChange(t *testing.T) {
	p := mustParse(t, good)
	c, _ := p.Capability("http:billing.read")
	c.Paths[0], c.Methods[0], c.Budget.Max, c.Confirm = "/**", "DELETE", 9, "x"
	p.Capabilities()[0].Credential = "dev"
	h, _ := p.Host("web1")
	h.HostKeys[0] = keyB
	p.Hosts()[0].HostKeys[0] = keyB
	if d := p.Diff(mustParse(t, good)); d != "" {
		t.Errorf("the policy changed:\n%s", d)
	}
}

func TestEmptyFileAllowsNothing(t *testing.T) {
	p := mustParse(t, "# nothing yet\n")
	d := p.Decide(func(string) bool { return true }, action.Request{Capability: "http:x", HTTP: &action.HTTP{Method: "GET", Path: "/"}})
	if d.Allowed || d.Code != CodeUnknown || len(p.Declared()) != 0 || len(p.Capabilities()) != 0 {
		t.Errorf("%+v", d)
	}
}

// edit replaces the one line of good that begins with a key, within a table.
func edit(t *testing.T, table, key, replacement string) (file string, line int) {
	t.Helper()
	return editFile(t, good, table, key, replacement)
}

func editFile(t *testing.T, file, table, key, replacement string) (string, int) {
	t.Helper()
	lines := strings.Split(file, "\n")
	at := slices.Index(lines, "["+table+"]")
	if at < 0 {
		t.Fatalf("no [%s]", table)
	}
	for i := at + 1; i < len(lines) && !strings.HasPrefix(lines[i], "["); i++ {
		if strings.HasPrefix(lines[i], key+" ") {
			lines[i] = replacement
			return strings.Join(lines, "\n"), i + 1
		}
	}
	lines = slices.Insert(lines, at+1, replacement)
	return strings.Join(lines, "\n"), at + 2
}

func TestProblemsByLine(t *testing.T) {
	const read, dev, status = `capability."http:billing.read"`, `capability."http:dev.all"`, `capability."ssh:web1.status"`
	for _, c := range []struct{ table, key, replacement, message string }{
		{"credential.billing", "kind", `kind = "bearrer"`, "unknown kind"},
		{"credential.billing", "kind", `kind = 7`, "must be a string"},
		{"credential.billing", "kind", `kind = ""`, "must not be empty"},
		{"credential.billing", "insecure", `insecure = true`, "no meaning for an https"},
		{"credential.billing", "private", `private = "yes"`, "true or false"},
		{"credential.deploy-key", "origin", `origin = "https://a.example"`, "an ssh-key has no origin"},
		{"credential.deploy-key", "insecure", `insecure = true`, "unknown key"},

		{"host.web1", "address", `address = "web1.example.net:ssh"`, "port"},
		{"host.web1", "address", `address = "deploy@web1.example.net"`, "not a valid name"},
		{"host.web1", "address", `address = "ssh://web1.example.net"`, "port"},
		{"host.web1", "user", `user = "de ploy"`, "user name"},
		{"host.web1", "user", `user = "-oProxyCommand=x"`, "user name"},
		{"host.web1", "user", `user = "a,b"`, "user name"},
		{"host.web1", "key", `key = "nokey"`, "there is no [credential.…]"},
		{"host.web1", "key", `key = "billing"`, "not of kind ssh-key"},
		{"host.web1", "host_keys", `host_keys = []`, "must not be empty"},
		{"host.web1", "host_keys", `host_keys = "` + keyA + `"`, "array of strings"},
		{"host.web1", "host_keys", `host_keys = ["ssh-ed25519 AAAA"]`, "is not a public key"},
		{"host.web1", "host_keys", `host_keys = ["SHA256:abc"]`, "is not a public key"},
		{"host.web1", "host_keys", `host_keys = ["` + keyA + `\n` + keyB + `"]`, "line break"},
		{"host.web1", "host_keys", `host_keys = ["cert-authority ` + keyA + `"]`, "no options"},
		{"host.web1", "host_keys", `host_keys = ["` + keyA + `", "` + keyA + ` again"]`, "twice"},

		{read, "credential", `credential = "nobody"`, "there is no [credential.…]"},
		{read, "credential", `credential = "deploy-key"`, "is of kind ssh-key, which has no origin"},
		{read, "methods", `methods = []`, "must not be empty"},
		{read, "methods", `methods = ["get"]`, "upper case"},
		{read, "methods", `methods = ["*"]`, "upper case"},
		{read, "methods", `methods = ["TRACE"]`, "never sent"},
		{read, "methods", `methods = ["CONNECT"]`, "never sent"},
		{read, "methods", `methods = ["GET", "GET"]`, "twice"},
		{read, "methods", `methods = [1]`, "array of strings"},
		{read, "paths", `paths = []`, "must not be empty"},
		{read, "query", `query = ["_method"]`, "would replace the method"},
		{read, "query", `query = [""]`, "no name"},
		{read, "budget", `budget = "300"`, "must be a number"},
		{read, "budget", `budget = "0/h"`, "must be a number"},
		{read, "budget", `budget = "-1/h"`, "must be a number"},
		{read, "budget", `budget = "1/w"`, "must be a number"},
		{read, "budget", `budget = "1/hh"`, "must be a number"},
		{read, "budget", `budget = "9999999999/h"`, "must be a number"},
		{read, "budget", `budget = 300`, "must be a string"},
		{read, "confirm", `confirm = "never"`, `"session" or "each"`},
		{read, "commands", `commands = ["id"]`, "unknown key"},
		{read, "host", `host = "web1"`, "unknown key"},
		{read, "origin", `origin = "https://evil.test"`, "unknown key"},
		{status, "host", `host = "web9"`, "there is no [host.…]"},
		{status, "methods", `methods = ["GET"]`, "unknown key"},
		{status, "commands", `commands = []`, "must not be empty"},
		{dev, "repeat", `repeat = 1`, "true or false"},
	} {
		file, line := edit(t, c.table, c.key, c.replacement)
		key, _, _ := strings.Cut(c.replacement, " ")
		wantProblem(t, file, line, c.table+"."+key, c.message)
	}
}

func TestMissingKeys(t *testing.T) {
	for _, c := range []struct{ table, key string }{
		{"credential.billing", "kind"}, {"credential.billing", "origin"}, {"credential.deploy-key", "kind"},
		{"host.web1", "address"}, {"host.web1", "user"}, {"host.web1", "key"}, {"host.web1", "host_keys"},
		{`capability."http:billing.read"`, "credential"}, {`capability."http:billing.read"`, "methods"}, {`capability."http:billing.read"`, "paths"},
		{`capability."ssh:web1.status"`, "host"}, {`capability."ssh:web1.status"`, "commands"},
	} {
		file, _ := edit(t, c.table, c.key, "")
		line := 1 + slices.Index(strings.Split(file, "\n"), "["+c.table+"]")
		wantProblem(t, file, line, c.table, c.key+" is missing")
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"http:", "ssh:", "ftp:x", "billing", "HTTP:x", "http:X", "http:a b", "http:a/b", "http:a*", "*", "http:é", "http:.a",
		"http:" + strings.Repeat("a", 65), "ssh-sign:x", " http:a", "http:a\\n", "http:a\\u0000"} {
		file := fmt.Sprintf("[credential.a]\nkind = \"bearer\"\norigin = \"https://a.example\"\n[capability.\"%s\"]\ncredential = \"a\"\nmethods = [\"GET\"]\npaths = [\"/a\"]\n", name)
		p, err := Parse([]byte(file))
		var problems Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Line != 4 {
			t.Errorf("capability %q: %v, %v", name, p, err)
		}
	}
	for _, name := range []string{"A", "a b", "", "-a", "a/b", "é", strings.Repeat("a", 65)} {
		file := fmt.Sprintf("\n[credential.\"%s\"]\nkind = \"bearer\"\norigin = \"https://a.example\"\n", name)
		p, err := Parse([]byte(file))
		var problems Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Line != 2 {
			t.Errorf("credential %q: %v, %v", name, p, err)
		}
	}
}

// M15: keys that differ in case, or are there twice, are never the last one to win.
func TestM15_DuplicateAndCaseVariantKeys(t *testing.T) {
	const head = "[credential.a]\nkind = \"bearer\"\norigin = \"https://a.example\"\n"
	for _, c := range []struct {
		file    string
		line    int
		message string
	}{
		{head + "origin = \"https://evil.test\"\n", 4, ""},
		{head + "[credential.a]\nkind = \"bearer\"\n", 4, ""},
		{head + "[credential.b]\nkind = \"ssh-key\"\n[credential.a]\n", 6, ""},
		{"credential.a.kind = \"bearer\"\ncredential.a.kind = \"bearer\"\n", 2, ""},
		{"credential = {a = {kind = \"bearer\", kind = \"ssh-key\"}}\n", 1, ""},
		{head + "Origin = \"https://evil.test\"\n", 4, "lower case"},
		{head + "\"\\u006Frigin\" = \"https://evil.test\"\n", 4, ""},
		{head + "[Credential.a]\n", 4, "unknown key"},
		{head + "\"\u212And\" = 1\n", 4, "unknown key"}, // the Kelvin sign folds to k
		{"[[credential]]\nkind = \"bearer\"\n", 1, "table of tables"},
		{"[[credential.a]]\nkind = \"bearer\"\n", 1, "must be a table"},
		{"credential = 7\n", 1, "table of tables"},
		{"credential.a = 7\n", 1, "must be a table"},
		{"[credential\n", 1, ""},
		{head + "x = \"\xff\"\n", 4, ""},
		{head + "x = [\n", 4, ""},
		{"\xef\xbb\xbf\xef\xbb\xbf" + head, 1, ""},
	} {
		p, err := Parse([]byte(c.file))
		var problems Problems
		if !errors.As(err, &problems) || p != nil || len(problems) != 1 || problems[0].Line != c.line || !strings.Contains(problems[0].Message, c.message) {
			t.Errorf("%s\ngives %v; want line %d: …%s…", c.file, err, c.line, c.message)
		}
	}
}

func TestNoSecretInTheFile(t *testing.T) {
	const canary = "sk_live_51canary"
	for _, key := range []string{"value", "secret", "token", "password", "Token", "api_key"} {
		file, line := edit(t, "credential.billing", key, key+` = "`+canary+`"`)
		wantProblem(t, file, line, "credential.billing."+key, "no secret stands in this file")
	}
	for _, c := range [][3]string{
		{"credential.billing", "kind", `kind = "` + canary + `"`},
		{"credential.billing", "token", `token = ` + canary},
		{"credential.billing", "token", canary},
		{"credential.billing", "token", `token = "` + canary},
		{"credential.billing", "token", `token = '` + canary + `' "` + canary + `"`},
		{"credential.billing", "token", `token = "` + canary + `\x"`},
		{"credential.billing", "origin", `origin = "https://u:` + canary + `@a.example"`},
		{"credential.billing", "origin", `origin = "` + canary + `"`},
		{"credential.billing", "origin", `origin = "https://a.example/?k=` + canary + `"`},
		{"credential.billing", "origin", `origin = "https://` + canary + `"`},
		{"host.web1", "host_keys", `host_keys = ["` + canary + `"]`},
		{"host.web1", "address", `address = "` + canary + `:x"`},
		{"host.web1", "key", `key = "` + canary + `"`},
		{"host.web1", "user", `user = "` + canary + ` "`},
		{`capability."http:billing.read"`, "methods", `methods = ["` + canary + `"]`},
		{`capability."http:billing.read"`, "budget", `budget = "` + canary + `"`},
		{`capability."http:billing.read"`, "credential", `credential = "` + canary + `"`},
	} {
		file, _ := edit(t, c[0], c[1], c[2])
		_, err := Parse([]byte(file))
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", c[2], err)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse([]byte(`
[credential.a]
kind = "bearer"
origin = "ftp://a.example"
token = "x"
[capability."http:a"]
credential = "b"
methods = [
  "GET",
  "get",
]
paths = ["/a/../b", "/**"]
colour = "red"
[policy]
`))
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if !slices.Equal(lines, []int{4, 5, 7, 10, 12, 12, 13, 14}) {
		t.Errorf("problems at %v:\n%v", lines, err)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var file strings.Builder
	for i := range 3 * maxProblems {
		fmt.Fprintf(&file, "k%d = 1\n", i)
	}
	_, err := Parse([]byte(file.String()))
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != maxProblems+1 || problems[maxProblems].String() != "line 101: and 200 more problems from here on" {
		t.Errorf("%d problems", len(problems))
	}
	wantProblem(t, strings.Repeat("k", 5000)+" = 1\n", 1, strings.Repeat("k", 200)+"...", "unknown key")
	wantProblem(t, "\"\\u001b[2J\" = 1\n", 1, `"\x1b[2J"`, "unknown key")
}

func TestUnusedKeyHasNoPlace(t *testing.T) {
	wantProblem(t, "[credential.k]\nkind = \"ssh-key\"\n", 1, "credential.k", "no host names this key")
}

func TestFileSize(t *testing.T) {
	file := good + "#" + strings.Repeat("x", maxFile-len(good)-1)
	mustParse(t, file)
	wantProblem(t, file+"x", 1, "", "longer than")
}

// Files that are legal but absurd are refused at a cost in proportion to their
// length: duplicates are not searched among too many keys, and of a long key
// only its beginning is noted.
func TestAbsurdFiles(t *testing.T) {
	for name, c := range map[string]struct{ file, message string }{
		"arrays":        {"a=" + strings.Repeat("[", maxFile-2), "nested"},
		"inline tables": {"a=" + strings.Repeat("{a=", (maxFile-2)/3), "nested"},
		"dotted key":    {strings.Repeat("a.", maxFile/16) + "a=1", "unknown key"},
		"dotted table":  {"[" + strings.Repeat("a.", maxFile/16) + "a]", "unknown key"},
		"dotted values": {"credential" + strings.Repeat(".a", 1<<14) + "={" + strings.Repeat("b.", 1<<14) + "c=1}", "kind is missing"},
		"many keys":     {"[credential.a]\n" + numbered("k%d=1\n"), "more than 10000 keys"},
		"many tables":   {numbered("[credential.k%d]\n"), "more than 10000 keys"},
		"inline keys":   {"credential={" + numbered("k%d=1,") + "z=1}", "more than 10000 keys"},
		"many elements": {"[capability.\"http:a\"]\npaths=[" + numbered("%d,") + "]", "array of strings"},
		"many strings":  {"[capability.\"http:a\"]\npaths=[" + numbered("\"/%d\",\n") + "]", "credential is missing"},
	} {
		_, err := Parse([]byte(c.file))
		if err == nil || !strings.Contains(err.Error(), c.message) || len(err.Error()) > 64<<10 {
			t.Errorf("%s: %.200v; want …%s…", name, err, c.message)
		}
		if !strings.HasPrefix(name, "dotted") {
			continue
		}
		for path := range readDocument([]byte(c.file)).lines {
			if strings.Count(path, "\x00") > maxNoted {
				t.Fatalf("%s: a key of %d bytes was noted", name, len(path))
			}
		}
	}
}

func numbered(format string) string {
	var b strings.Builder
	for i := 0; b.Len() < maxFile/4; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	seeds := []string{good, "", "[credential.a]\nkind = \"bearer\"\n", "credential = {a = {kind = 1}}", "[[host]]\n", "a.b.c.d.e = [[1], {x = 2}]",
		"[capability.\"http:a\"]\npaths = [\n # c\n \"/**\", 1, []]\n", "[host.a]\naddress = \"[::1]:22\"\nhost_keys = [\"x\"]\n"}
	if len(seeds) == 0 || !strings.Contains(seeds[0], "capability") {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		var problems Problems
		switch {
		case err != nil && (!errors.As(err, &problems) || len(problems) == 0 || p != nil):
			t.Fatalf("%v, %#v", p, err)
		case err == nil && p == nil:
			t.Fatal("neither policy nor problems")
		case err == nil && p.Diff(p) != "":
			t.Fatal("a policy differs from itself")
		}
		lines := 1 + strings.Count(string(data), "\n")
		for _, problem := range problems {
			if problem.Line < 1 || problem.Line > lines || problem.Message == "" {
				t.Fatalf("problem %+v in a file of %d lines", problem, lines)
			}
		}
	})
}
