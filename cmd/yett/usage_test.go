package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runHere runs the command line in this process, on files as its streams.
func runHere(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	streams := make([]*os.File, 3)
	for i := range streams {
		f, err := os.Create(filepath.Join(t.TempDir(), "stream"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		streams[i] = f
	}
	code = run(args, streams[0], streams[1], streams[2])
	text := func(f *os.File) string {
		said, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(said)
	}
	return text(streams[1]), text(streams[2]), code
}

// TestWrongCalls: each says what was wrong in a sentence of ours, names the
// right form and exits with 2, as text and as JSON.
func TestWrongCalls(t *testing.T) {
	for _, c := range []struct{ call, says, next string }{
		{"aprove", `there is no command "yett aprove"; did you mean approve?`, "yett --help"},
		{"frobnicate", `there is no command "yett frobnicate"`, "yett --help"},
		{"help frobnicate", `there is no command "yett frobnicate"`, "yett help --help"},
		{"help secret sett", `there is no command "yett secret sett"; did you mean set?`, "yett help --help"},
		{"secret sett x", `there is no command "yett secret sett"; did you mean set?`, "yett secret --help"},
		{"approve", "ID is missing", "yett approve [ID]"},
		{"approve a b", `"b" is one argument too many`, "yett approve [ID]"},
		{"status now", `yett status takes no argument, and was given "now"`, "yett status"},
		{"approve a --for 30", `write 30m for minutes`, "yett approve [ID]"},
		{"approve a --for soon", `a length of time like 30m or 8h, not "soon"`, "yett approve [ID]"},
		{"approve a --for", "--for needs a value", "yett approve [ID]"},
		{"add http --port ssh", `--port takes a number, not "ssh"`, "yett add [PRESET]"},
		{"status --verbose", "yett status has no flag --verbose", "yett status --help"},
		{"status -x", "yett status has no flag -x", "yett status --help"},
		{"completion tcsh", `one of bash, zsh, fish, and not "tcsh"`, "yett completion SHELL"},
		{"connect zed --print --remove", "--print and --remove exclude each other", "yett connect [CLIENT]"},
		{"access test", "CAPABILITY and COMMAND are missing", "yett access test CAPABILITY METHOD PATH, or yett access test CAPABILITY COMMAND"},
		{"serve --keep-bodies 59m", "--keep-bodies is a time from 1h to 2160h", "yett serve"},
		{"serve --keep-bodies 2161h", "--keep-bodies is a time from 1h to 2160h", "yett serve"},
		{"serve --keep-bodies-mib 127", "--keep-bodies-mib is a number from 128 to 1048576", "yett serve"},
		{"serve --keep-bodies-mib 1048577", "--keep-bodies-mib is a number from 128 to 1048576", "yett serve"},
		{"receipt", "N is missing", "yett receipt N"},
		{"--home", "--home needs a value", "yett --help"},
	} {
		out, said, code := runHere(t, strings.Fields(c.call)...)
		if code != exitUsage || out != "" || !strings.Contains(said, c.says) || !strings.Contains(said, "next: ") || !strings.Contains(said, c.next) {
			t.Errorf("yett %s: exit %d, %q%q; want %q and %q", c.call, code, out, said, c.says, c.next)
		}
		if c.call == "--home" || c.call == "approve a --for" {
			continue // --json would be the value
		}
		var fail struct {
			Error struct {
				Code, Message string
				NextStep      string `json:"next_step"`
			}
		}
		_, said, code = runHere(t, append(strings.Fields(c.call), "--json")...)
		if err := json.Unmarshal([]byte(said), &fail); err != nil || code != exitUsage || fail.Error.Code != "usage" || !strings.Contains(fail.Error.Message, c.says) || !strings.Contains(fail.Error.NextStep, c.next) {
			t.Errorf("yett %s --json: exit %d, %v %s", c.call, code, err, said)
		}
	}
}

// TestEveryFormIsRead: what the form of a command names is what it wants: one
// word fewer is missing, one more is too many, in our own words.
func TestEveryFormIsRead(t *testing.T) {
	var try func(c *cobra.Command)
	try = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			try(sub)
		}
		if c.Args == nil || c.Hidden || c.HasSubCommands() {
			return
		}
		required, most := argumentNames(c)
		words := strings.Fields(c.CommandPath())[1:]
		calls := [][]string{}
		if len(required) > 0 {
			calls = append(calls, append(slices.Clone(words), slices.Repeat([]string{"x"}, len(required)-1)...))
		}
		if !strings.Contains(c.Use, "…") {
			calls = append(calls, append(slices.Clone(words), slices.Repeat([]string{"x"}, most+1)...))
		}
		for _, call := range calls {
			if _, said, code := runHere(t, call...); code != exitUsage || strings.Contains(said, "arg(s)") || strings.Contains(said, "unknown") {
				t.Errorf("%v: exit %d %s", call, code, said)
			}
		}
	}
	try(newRoot(&app{passFD: -1}))
}

// TestCompletionOfFiles: names of files are offered where the form says that a
// file is meant, and nowhere else.
func TestCompletionOfFiles(t *testing.T) {
	const files, none = ":0", ":4"
	offers := func(words []string) string {
		out, _, _ := runHere(t, append([]string{"__complete"}, words...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1]
	}
	seen := map[string]int{}
	var try func(c *cobra.Command)
	try = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			try(sub)
		}
		if c.Hidden || c.HasSubCommands() || c.Name() == "help" {
			return
		}
		words := strings.Fields(c.CommandPath())[1:]
		for i, name := range strings.Fields(c.Use)[1:] {
			got := offers(append(append(slices.Clone(words), slices.Repeat([]string{"x"}, i)...), ""))
			want := none
			if name == "FILE" || strings.HasSuffix(name, "-CHECKPOINT") {
				want = files
			}
			if seen[want]++; got != want && got != ":36" && got != ":8" { // 32: in the order given; 8: by the ending
				t.Errorf("%s, argument %s: %s, want %s", c.CommandPath(), name, got, want)
			}
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			kind, _ := pflag.UnquoteUsage(f)
			want := none
			if kind == "FILE" || kind == "KEY" {
				want = files
			}
			if seen[want]++; f.Value.Type() != "bool" && offers(append(slices.Clone(words), "--"+f.Name, "")) != want && f.Name != "for" {
				t.Errorf("%s --%s %s: want %s", c.CommandPath(), f.Name, kind, want)
			}
		})
	}
	try(newRoot(&app{passFD: -1}))
	if seen[files] < 5 || seen[none] < 20 {
		t.Errorf("tried: %v", seen)
	}
}

// TestExamplesAreRight: each line calls a command that is there, with flags and
// arguments that it takes.
func TestExamplesAreRight(t *testing.T) {
	seen := 0
	var try func(c *cobra.Command)
	try = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			call, _, _ := strings.Cut(strings.TrimSpace(line), " > ")
			call, _, _ = strings.Cut(call, " < ")
			call, _, _ = strings.Cut(call, " 3< ")
			words := strings.Fields(call)
			root := newRoot(&app{passFD: -1})
			sub, rest, err := root.Find(words[1:])
			if err == nil {
				err = sub.ParseFlags(rest)
			}
			if err == nil {
				err = sub.ValidateArgs(sub.Flags().Args())
			}
			if words[0] != "yett" || err != nil || !sub.Runnable() {
				t.Errorf("%s: %s: %v", c.CommandPath(), call, err)
			}
			seen++
		}
		for _, sub := range c.Commands() {
			try(sub)
		}
	}
	root := newRoot(&app{passFD: -1})
	try(root)
	for path := range examples {
		if c, _, err := root.Find(strings.Fields(path)); err != nil || c.CommandPath() != "yett "+path {
			t.Errorf("examples of %q, which is no command", path)
		}
	}
	if seen < 30 {
		t.Errorf("%d examples", seen)
	}
}
