package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

func all(string) bool { return true }

func httpPolicy(t *testing.T, lines string) *Policy {
	t.Helper()
	return mustParse(t, "[credential.a]\nkind = \"bearer\"\norigin = \"https://a.example\"\n[capability.\"http:a\"]\ncredential = \"a\"\n"+lines)
}

func sshPolicy(t *testing.T, commands, more string) *Policy {
	t.Helper()
	return mustParse(t, fmt.Sprintf("[credential.k]\nkind = \"ssh-key\"\n[host.h]\naddress = \"h.example\"\nuser = \"u\"\nkey = \"k\"\nhost_keys = [%q]\n"+
		"[capability.\"ssh:h\"]\nhost = \"h\"\ncommands = [%s]\n%s\n", keyA, commands, more))
}

func get(t *testing.T, path string, query map[string][]string) action.Request {
	t.Helper()
	h, r := action.NewHTTP(action.HTTPInput{Method: "GET", Path: path, Query: query})
	if r != nil {
		t.Fatal(r)
	}
	return action.Request{Capability: "http:a", HTTP: h}
}

func run(t *testing.T, in action.SSHInput) action.Request {
	t.Helper()
	s, r := action.NewSSH(in)
	if r != nil {
		t.Fatal(r)
	}
	return action.Request{Capability: "ssh:h", SSH: s}
}

func TestDecideOrder(t *testing.T) {
	p := httpPolicy(t, "methods = [\"GET\"]\npaths = [\"/v1\"]\n")
	ok := get(t, "/v1", nil)
	outside := get(t, "/v2", nil)
	unknown := ok
	unknown.Capability = "http:b"
	post := get(t, "/v1", nil)
	post.HTTP.Method = "POST"
	for name, c := range map[string]struct {
		r       action.Request
		granted func(string) bool
		code    string
	}{
		"allowed":             {ok, func(n string) bool { return n == "http:a" }, ""},
		"unknown":             {unknown, all, CodeUnknown},
		"not granted":         {ok, func(string) bool { return false }, CodeNotGranted},
		"another one granted": {ok, func(n string) bool { return n == "http:b" }, CodeNotGranted},
		"not granted first":   {outside, func(string) bool { return false }, CodeNotGranted},
		"path outside":        {outside, all, CodeOutside},
		"method outside":      {post, all, CodeOutside},
		"another kind":        {action.Request{Capability: "http:a", SSH: &action.SSH{Command: "id"}}, all, CodeOutside},
		"both kinds":          {action.Request{Capability: "http:a", HTTP: ok.HTTP, SSH: &action.SSH{Command: "id"}}, all, CodeOutside},
		"neither kind":        {action.Request{Capability: "http:a"}, all, CodeOutside},
		"name in upper case":  {action.Request{Capability: "HTTP:A", HTTP: ok.HTTP}, all, CodeUnknown},
	} {
		d := p.Decide(c.granted, c.r)
		if d.Allowed != (c.code == "") || d.Code != c.code || (d.Detail == "") != d.Allowed || (d.Capability == nil) != (c.code == CodeUnknown) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestH05_PathPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		in, out []string
	}{
		{"/public", []string{"/public", "/%70ublic"}, []string{"/public/", "/public/a", "/Public", "/publi", "/publicx", "/", "/public;x"}},
		{"/public/", []string{"/public/"}, []string{"/public", "/public/a"}},
		{"/public/**", []string{"/public/a", "/public/a/b", "/public/a/", "/public/a%3Ab"}, []string{"/public", "/public/", "/publicx/a", "/secret/a", "/"}},
		{"/a/*/c", []string{"/a/b/c", "/a/*/c", "/a/%2A/c", "/a/b:x/c"}, []string{"/a/c", "/a/b/b/c", "/a/b/c/", "/a/b/cc", "/a/b"}},
		{"/a/*", []string{"/a/b"}, []string{"/a", "/a/", "/a/b/", "/a/b/c"}},
		{"/a/*/**", []string{"/a/b/c", "/a/b/c/d"}, []string{"/a/b", "/a/b/", "/a"}},
		{"/é", []string{"/é", "/%c3%a9"}, []string{"/e"}},
	} {
		pattern, _ := action.CanonicalPath(c.pattern)
		p := httpPolicy(t, fmt.Sprintf("methods = [\"GET\"]\npaths = [%q]\n", pattern))
		for _, path := range c.in {
			if d := p.Decide(all, get(t, path, nil)); !d.Allowed {
				t.Errorf("%s is outside of %s: %s", path, c.pattern, d.Detail)
			}
		}
		for _, path := range c.out {
			if p.Decide(all, get(t, path, nil)).Allowed {
				t.Errorf("%s is within %s", path, c.pattern)
			}
		}
	}
}

// H05: a request that did not come through NewHTTP gains nothing by it.
func TestH05_OnlyCanonicalPathsAreWithin(t *testing.T) {
	p := httpPolicy(t, "methods = [\"GET\"]\npaths = [\"/public/**\"]\n")
	for _, path := range []string{"/public/../secret", "/public/%2e%2e/secret", "/public/a%2F..%2Fsecret", "/public/a//b", "/public/..;/secret", "/public/%252e", "/public/a?b", "/public/%7e", "", "public/a"} {
		r := action.Request{Capability: "http:a", HTTP: &action.HTTP{Method: "GET", Path: path}}
		if d := p.Decide(all, r); d.Allowed || d.Code != CodeOutside {
			t.Errorf("path %q: %+v", path, d)
		}
	}
}

func TestPathPatternProblems(t *testing.T) {
	file := func(pattern, more string) string {
		return fmt.Sprintf("[credential.a]\nkind = \"bearer\"\norigin = \"https://a.example\"\n[capability.\"http:a\"]\ncredential = \"a\"\nmethods = [\"GET\"]\npaths = [\"/ok\",\n%q]\n%s", pattern, more)
	}
	for pattern, message := range map[string]string{
		"": "missing", "a": "begin with", "*": "begin with", "**": "begin with", "/a/../b": "dot segment", "/a%2fb": "encoded slash", "/a//b": "empty segment", "/a?b=*": "parameters",
		"/%7ea": "must be written as /~a", "/a b": "must be written as /a%20b", "/é": "must be written as /%C3%A9", "/a%3ab": "must be written as /a%3Ab",
		"/**/a": "last segment", "/a/**/": "last segment", "/a*": "whole segment", "/*a": "whole segment", "/a/***": "whole segment", "/a**": "whole segment", "https://a.example/a": "begin with",
	} {
		wantProblem(t, file(pattern, ""), 8, `capability."http:a".paths`, message)
	}
	for _, pattern := range []string{"/**", "/*", "/*/*", "/*/**", "/*/", "/*/*/"} {
		wantProblem(t, file(pattern, ""), 8, `capability."http:a".paths`, `confirm = "each"`)
		wantProblem(t, file(pattern, "confirm = \"session\"\n"), 8, `capability."http:a".paths`, `confirm = "each"`)
		mustParse(t, file(pattern, "confirm = \"each\"\n"))
	}
	for _, pattern := range []string{"/", "/a/**", "/*/a", "/a/%2A"} {
		mustParse(t, file(pattern, ""))
	}
}

func TestQueryNames(t *testing.T) {
	free := httpPolicy(t, "methods = [\"GET\"]\npaths = [\"/v1\"]\n")
	some := httpPolicy(t, "methods = [\"GET\"]\npaths = [\"/v1\"]\nquery = [\"page\", \"a b\"]\n")
	none := httpPolicy(t, "methods = [\"GET\"]\npaths = [\"/v1\"]\nquery = []\n")
	for _, c := range []struct {
		query            map[string][]string
		free, some, none bool
	}{
		{nil, true, true, true},
		{map[string][]string{"page": {}}, true, true, true},
		{map[string][]string{"page": {"1", "2"}, "a b": {""}}, true, true, false},
		{map[string][]string{"page": {"1"}, "x": {"1"}}, true, false, false},
		{map[string][]string{"Page": {"1"}}, true, false, false},
		{map[string][]string{"page&x": {"1"}}, true, false, false},
		{map[string][]string{"page=1&x": {"1"}}, true, false, false},
	} {
		r := get(t, "/v1", c.query)
		if f, s, n := free.Decide(all, r).Allowed, some.Decide(all, r).Allowed, none.Decide(all, r).Allowed; f != c.free || s != c.some || n != c.none {
			t.Errorf("query %v: %v %v %v", c.query, f, s, n)
		}
	}
}

// H10: the credential goes where its kind says; an agent cannot put one there.
func TestH10_CredentialsOwnPlaceIsNotTheAgents(t *testing.T) {
	p := httpPolicy(t, "methods = [\"GET\"]\npaths = [\"/v1\"]\n")
	for _, name := range []string{"access_token", "Access_Token", "ACCESS_TOKEN", "access.token", " access_token", "access_token[]"} {
		if d := p.Decide(all, get(t, "/v1", map[string][]string{name: {"x"}})); d.Allowed || d.Code != CodeOutside {
			t.Errorf("query parameter %s: %+v", name, d)
		}
	}
	for _, name := range []string{"Authorization", "authorization", "AUTHORIZATION", "Proxy-Authorization", "Cookie", "X_Forwarded_For"} {
		if _, r := action.NewHTTP(action.HTTPInput{Method: "GET", Path: "/v1", Headers: map[string]string{name: "Bearer x"}}); r == nil || r.Code != CodeOutside {
			t.Errorf("header %s: %v", name, r)
		}
	}
}

func TestS10_CommandPatterns(t *testing.T) {
	p := sshPolicy(t, `"uptime", "systemctl status *", "cat a | wc -l", "cp * to *"`, "")
	for _, command := range []string{"uptime", "systemctl status nginx", "systemctl status nginx@1.service", "systemctl status a=b,c:d/e+f-g_h", "cat a | wc -l", "cp /a to /b"} {
		if d := p.Decide(all, run(t, action.SSHInput{Command: &command})); !d.Allowed {
			t.Errorf("%q is outside: %s", command, d.Detail)
		}
	}
	for _, command := range []string{
		"uptime ", " uptime", "uptime -p", "uptime;id", "Uptime", "uptime\n", "'uptime'",
		"systemctl status", "systemctl status ", "systemctl status a b", "systemctl  status a", "systemctl status  a", "systemctl\tstatus a", "systemctl status a\n", "systemctl status a\nid",
		"systemctl status -H evil", "systemctl status -Hevil", "systemctl status --help", "systemctl status =ls", "systemctl status *",
		"systemctl status a;id", "systemctl status $(id)", "systemctl status `id`", "systemctl status a|id", "systemctl status a&id", "systemctl status a>b", "systemctl status <a",
		"systemctl status $HOME", "systemctl status ~", "systemctl status {a,b}", "systemctl status a?", "systemctl status [a]", "systemctl status !1", "systemctl status #", "systemctl status a\\", "systemctl status 'a'",
		`systemctl status "a"`, "systemctl status (a)", "systemctl status é", "systemctl status a%b", "systemctl status a^b", "systemctl stop nginx", "xsystemctl status nginx",
		"cat a|wc -l", "cp a to", "cp -a to b", "cp a to b c",
	} {
		if d := p.Decide(all, run(t, action.SSHInput{Command: &command})); d.Allowed || d.Code != CodeOutside {
			t.Errorf("%q is within", command)
		}
	}
	for _, c := range []struct {
		argv []string
		want bool
	}{
		{[]string{"uptime"}, true},
		{[]string{"systemctl", "status", "nginx"}, true},
		{[]string{"systemctl", "status", "a; id"}, false},
		{[]string{"systemctl", "status", "a b"}, false},
		{[]string{"systemctl", "status", "-H"}, false},
		{[]string{"systemctl", "status", ""}, false},
		{[]string{"systemctl", "status a"}, false},
		{[]string{"cat", "a", "|", "wc", "-l"}, false},
	} {
		if got := p.Decide(all, run(t, action.SSHInput{Argv: c.argv})).Allowed; got != c.want {
			t.Errorf("argv %q: %v", c.argv, got)
		}
	}
}

func TestS10_EverythingNeedsConfirmEach(t *testing.T) {
	p := sshPolicy(t, `"*"`, `confirm = "each"`)
	for command, want := range map[string]bool{"id": true, "id;id": false, "rm -rf": false} {
		if got := p.Decide(all, run(t, action.SSHInput{Command: &command})).Allowed; got != want {
			t.Errorf("%q: %v", command, got)
		}
	}
}

func TestCommandPatternProblems(t *testing.T) {
	file := func(pattern, more string) string {
		return fmt.Sprintf("[credential.k]\nkind = \"ssh-key\"\n[host.h]\naddress = \"h.example\"\nuser = \"u\"\nkey = \"k\"\nhost_keys = [%q]\n"+
			"[capability.\"ssh:h\"]\nhost = \"h\"\ncommands = [\"id\",\n%q]\n%s\n", keyA, pattern, more)
	}
	for pattern, message := range map[string]string{
		"": "empty", " ": "empty", " id": "spaces around", "id ": "spaces around", "a\nb": "control", "a\tb": "control", "a\u0000": "control",
		"ls *.log": "whole word", "ls **": "whole word", "ls  *": "single spaces", "ls * | wc": "shell characters", "ls $HOME *": "shell characters", "sh -c 'x *'": "", "echo \"*\"": "whole word",
	} {
		wantProblem(t, file(pattern, ""), 11, `capability."ssh:h".commands`, message)
	}
	for _, pattern := range []string{"*", "* *", "* status"} {
		wantProblem(t, file(pattern, ""), 11, `capability."ssh:h".commands`, `confirm = "each"`)
		mustParse(t, file(pattern, `confirm = "each"`))
	}
	mustParse(t, file("a | b; c 'd' $(e)", ""))
}

// Decide names nothing of the file to the agent but the capability.
func TestDetailNamesNoPlace(t *testing.T) {
	p := httpPolicy(t, "methods = [\"GET\"]\npaths = [\"/v1/hidden-place\"]\nquery = [\"hidden-name\"]\n")
	for _, r := range []action.Request{get(t, "/v2", nil), get(t, "/v1/hidden-place", map[string][]string{"x": {"1"}})} {
		if d := p.Decide(all, r); d.Allowed || strings.Contains(d.Detail, "hidden") || strings.Contains(d.Detail, "a.example") {
			t.Errorf("%+v", d)
		}
	}
}

// FuzzCommandPattern: what a pattern with '*' admits has no character that a
// shell reads.
func FuzzCommandPattern(f *testing.F) {
	seeds := [][2]string{{"systemctl status *", "systemctl status nginx"}, {"* b *", "a b c"}, {"cp * *", "cp a;b c"}}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, command string) {
		if _, err := checkCommandPattern(pattern); err != nil || !matchCommand(pattern, command) {
			return
		}
		if !strings.Contains(pattern, "*") {
			if command != pattern {
				t.Fatalf("%q admits %q", pattern, command)
			}
			return
		}
		const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/@:=,+- "
		if strings.Trim(command, plain) != "" {
			t.Fatalf("%q admits %q", pattern, command)
		}
		words := strings.Split(command, " ")
		if len(words) != len(strings.Split(pattern, " ")) || slices.Contains(words, "") {
			t.Fatalf("%q admits %q", pattern, command)
		}
	})
}
