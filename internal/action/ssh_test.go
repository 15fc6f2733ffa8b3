package action

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustSSH(t *testing.T, in SSHInput) *SSH {
	t.Helper()
	s, r := NewSSH(in)
	if r != nil {
		t.Fatalf("NewSSH: %s", r.Detail)
	}
	return s
}

func TestQuote(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"uptime"}, "uptime"},
		{[]string{"ls", "-l", "/var/log/a.b", "u@h:p", "a=b,c+d"}, "ls -l /var/log/a.b u@h:p a=b,c+d"},
		{[]string{"printf", "%s", "a b; id", "$HOME", "*", "", "it's", "a\nb"}, "printf '%s' 'a b; id' '$HOME' '*' '' 'it'\\''s' 'a\nb'"},
		{[]string{"FOO=bar", "x"}, "'FOO=bar' x"},
		{[]string{"if", "if"}, "'if' if"},
		{[]string{"x", "=ls", "~", "{a,b}", "!!", "a#b", "#"}, "x '=ls' '~' '{a,b}' '!!' 'a#b' '#'"},
		{[]string{"x", `\`, `a\b`, `'`, `''`}, `x \\ 'a'\\'b' \' \'\'`},
		{[]string{"x", "é"}, "x 'é'"},
	} {
		if got := mustSSH(t, SSHInput{Argv: c.argv}).Command; got != c.want {
			t.Errorf("Quote(%q) = %s\nwant %s", c.argv, got, c.want)
		}
	}
}

// S10: the arguments that were approved are those that the program gets, read
// by the real shells of this machine.
func TestS10_ShellsReadArgvAsGiven(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"show", "if", "FOO=bar"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nprintf '%s\\0' \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"%s", "a b; id", "$HOME", "${IFS}", "*", "?", "[a]", "", "it's", `a\b`, `\\`, `\'`, "'", `"`, "`id`", "$(id)", "~", "~root",
		"{a,b}", "=ls", "!!", "!x", "#x", "a\nb", "\n", "a\tb", "-n", "--", "&", "|", ">x", "<x", "(", ")", "^a", "%1", "é", "a=b", "if", "FOO=bar", `end\`}
	tried := 0
	for _, shell := range []string{"sh", "dash", "bash", "rbash", "zsh", "mksh", "fish"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // which shells a machine has is not ours to say; one is asserted below
		}
		tried++
		programs := []string{"show", "if", "FOO=bar"}
		if shell == "fish" {
			programs = programs[:1] // it takes a quoted 'if' for a statement too
		}
		for _, program := range programs {
			command := mustSSH(t, SSHInput{Argv: append([]string{program}, args...)}).Command
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			cmd := exec.CommandContext(ctx, path, "-c", command)
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + dir}
			out, err := cmd.Output()
			cancel()
			if err != nil {
				t.Errorf("%s: %s: %v", shell, program, err)
				continue
			}
			got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			if !slices.Equal(got, args) {
				t.Errorf("%s: %s was given %q\nwant %q", shell, program, got, args)
			}
		}
	}
	if tried == 0 {
		t.Fatal("no shell was found")
	}
}

func TestS10_OpaqueCommandIsVerbatim(t *testing.T) {
	for _, command := range []string{"uptime", "a  b;\tid | wc\nexit 3", " 'x' ", "echo é\u202e"} {
		if got := mustSSH(t, SSHInput{Command: &command}).Command; got != command {
			t.Errorf("command %q became %q", command, got)
		}
	}
}

func TestS10_NeverBothNorNeither(t *testing.T) {
	ok := "uptime"
	millis := func(n int64) *int64 { return &n }
	for name, in := range map[string]SSHInput{
		"both":               {Command: &ok, Argv: []string{"id"}},
		"both, argv empty":   {Command: &ok, Argv: []string{}},
		"neither":            {},
		"no program":         {Argv: []string{}},
		"empty program":      {Argv: []string{"", "x"}},
		"empty":              {Command: text("")},
		"blank":              {Command: text(" \n\t")},
		"NUL":                {Command: text("a\x00b")},
		"NUL in argv":        {Argv: []string{"a", "b\x00"}},
		"escape":             {Command: text("echo \x1b[2J")},
		"escape in argv":     {Argv: []string{"echo", "\x1b[2J"}},
		"carriage return":    {Command: text("echo a\rb")},
		"C1":                 {Command: text("echo \u009b")},
		"DEL":                {Command: text("echo \x7f")},
		"not UTF-8":          {Command: text("\xff")},
		"argv not UTF-8":     {Argv: []string{"a", "\xff"}},
		"too long":           {Command: text(strings.Repeat("a", maxCommand+1))},
		"too many arguments": {Argv: slices.Repeat([]string{"a"}, maxArgvLength+1)},
		"timeout 0":          {Command: &ok, TimeoutMS: millis(0)},
		"timeout negative":   {Command: &ok, TimeoutMS: millis(-1)},
		"timeout too long":   {Command: &ok, TimeoutMS: millis(maxTimeoutMS + 1)},
		"timeout overflow":   {Command: &ok, TimeoutMS: millis(1 << 62)},
	} {
		if s, r := NewSSH(in); r == nil || r.Code != CodeBadRequest || s != nil {
			t.Errorf("%s: %+v, %v", name, s, r)
		}
	}
	s := mustSSH(t, SSHInput{Command: &ok, Stdin: text("in\x00"), TimeoutMS: millis(maxTimeoutMS)})
	if s.Timeout != 10*time.Minute || string(s.Stdin) != "in\x00" {
		t.Errorf("%+v", s)
	}
}

// FuzzQuote: whatever the arguments, the command is read back as them.
func FuzzQuote(f *testing.F) {
	seeds := []string{"a", "", "it's", `\`, `\'\\''`, "a b", "=x", "$(id)", "é"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		argv := []string{"p", a, b}
		if got := unquote(Quote(argv)); !slices.Equal(got, argv) {
			t.Fatalf("Quote(%q) = %s is read as %q", argv, Quote(argv), got)
		}
	})
}

// unquote splits a command by the three rules of the POSIX shell that Quote
// uses: quotes, backslashes, spaces.
func unquote(s string) []string {
	var words []string
	var word []byte
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\'':
			quoted = !quoted
		case quoted:
			word = append(word, s[i])
		case s[i] == '\\':
			i++
			word = append(word, s[i])
		case s[i] == ' ':
			words = append(words, string(word))
			word = nil
		default:
			word = append(word, s[i])
		}
	}
	return append(words, string(word))
}
