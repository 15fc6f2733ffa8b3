// Package screen writes what a person reads on a terminal: a card, lists, numbers
// with their nouns. Text of an agent that comes in here was escaped where its card
// was written; this room sees to it that such text never begins a line, that no
// part of what is decided upon is left out, and that what is only claimed is
// shortened to what a screen has room for.
package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// Card prints a card for a person, what matters most first: what is out of
// the ordinary, what a yes gives, the action in full; then what was established
// about who asks, what nobody knows, and what the agent says of itself, which
// is shortened. Every text in it was escaped where the card was written.
func Card(out io.Writer, p wire.Approval) (approval.Card, error) {
	w := new(bytes.Buffer)
	var c approval.Card
	if err := json.Unmarshal(p.Card, &c); err != nil {
		return c, fmt.Errorf("reading a card: %w", err)
	}
	head := "── " + strings.ToUpper(c.Tag) + " "
	fmt.Fprintln(w, head+strings.Repeat("─", max(3, usualWidth-len([]rune(head)))))
	fmt.Fprintln(w, Summary(c))
	if p.Asked > 1 {
		fmt.Fprintf(w, "  (asked %d times since it waits)\n", p.Asked)
	}
	printNotes(w, c)
	printGranting(w, c.Granting, c.Request != nil)
	printRequest(w, c.Request)
	printVerified(w, c.Verified)
	printClaims(w, c.Claimed)
	fmt.Fprintf(w, "%s: %s\n", c.Verified.Profile, c.Verified.Limits)
	fmt.Fprintf(w, "  card      %s\n", c.ApprovalID)
	fmt.Fprintf(w, "  digest    %s\n  decide by %s\n", p.CardDigest, c.ExpiresAt.Local().Format(time.TimeOnly))
	_, err := io.WriteString(out, Wrap(approval.Printable(w.String()), Width(out)))
	return c, err
}

// Summary says in one sentence who asks for what.
func Summary(c approval.Card) string {
	names := make([]string, len(c.Granting.Capabilities))
	for i, g := range c.Granting.Capabilities {
		names[i] = g.Name
	}
	what := strings.Join(names, ", ")
	if c.Request != nil {
		what = "one action of " + what
	}
	k := c.Verified.Agent.Kernel
	return fmt.Sprintf("%s (pid %d) asks for %s.", Program(k.ExePath), k.PID, what)
}

// Program names a program that may be hidden.
func Program(path string) string {
	if path == "" {
		return "a program that hides itself"
	}
	return path
}

// printNotes prints what is out of the ordinary.
func printNotes(w io.Writer, c approval.Card) {
	note := func(text string) { fmt.Fprintf(w, "  NOTE      %s\n", text) }
	if c.Granting.Note != "" {
		note(c.Granting.Note)
	}
	if hidden := c.Request.Warning(); hidden != "" {
		note(hidden)
	}
	for _, word := range c.Verified.Words {
		note(word)
	}
	switch n := c.Verified.OtherSessions; {
	case n == 1:
		note("this agent already has a session; this is another one, by itself")
	case n > 1:
		note(fmt.Sprintf("this agent already has %d sessions; this is another one, by itself", n))
	}
	if c.Verified.Home != "" {
		note("a test home: " + c.Verified.Home)
	}
}

func printGranting(w io.Writer, g approval.Granting, oneAction bool) {
	switch {
	case oneAction:
		fmt.Fprintln(w, "A YES GIVES (the one action below, once)")
	case g.Unit == action.UnitOperation:
		fmt.Fprintln(w, "A YES GIVES (nothing yet: it may ask, and each action gets a card of its own)")
	default:
		fmt.Fprintln(w, "A YES GIVES (to this one process, on this one connection)")
	}
	for _, c := range g.Capabilities {
		fmt.Fprintf(w, "  %s  →  %s\n", c.Name, c.Target)
		if c.Insecure {
			fmt.Fprintln(w, "    INSECURE: the credential goes over plain http")
		}
		host(w, c)
		if oneAction {
			continue
		}
		if c.Confirm != "" {
			fmt.Fprintln(w, "    each action is asked for again")
		}
		List(w, "methods", c.Methods)
		List(w, "paths", c.Paths)
		List(w, "query", c.Query)
		List(w, "commands", c.Commands)
		List(w, "variables", c.Env)
		if c.PTY {
			List(w, "terminal", []string{"a command may have one"})
		}
		if f := c.Copy; f != nil {
			Copying(w, f.Direction, f.Remote, f.Local, f.MaxSize, f.Overwrite)
		}
		if c.Budget != "" {
			List(w, "budget", []string{c.Budget})
		}
	}
	fmt.Fprintf(w, "  unit      %s (%s)\n", g.Unit, unitWords[g.Unit])
	if !oneAction {
		fmt.Fprintf(w, "  until     %s at the longest\n", g.LongestEnd.Local().Format("2006-01-02 15:04"))
	}
}

// unitWords say what a unit is.
var unitWords = map[action.Unit]string{action.UnitProcess: "this one process", action.UnitOperation: "one action"}

// printRequest prints the action in full: it is what the yes is about.
func printRequest(w io.Writer, r *approval.Request) {
	if r == nil {
		return
	}
	fmt.Fprintln(w, "THE ACTION")
	if r.Command != "" {
		fmt.Fprintf(w, "  command   %s\n", r.Command)
		for _, v := range r.Env {
			fmt.Fprintf(w, "  variable  %s=%s\n", v.Name, v.Value)
		}
		if r.PTY {
			fmt.Fprintln(w, "  terminal  yes")
		}
		if r.StdinSize > 0 {
			fmt.Fprintf(w, "  stdin     %d bytes: %s\n", r.StdinSize, r.Stdin)
			printEnd(w, r)
		}
		return
	}
	if r.Direction != "" {
		printCopy(w, r)
		return
	}
	fmt.Fprintf(w, "  %s %s", r.Method, r.Path)
	if r.Query != "" {
		fmt.Fprintf(w, "?%s", r.Query)
	}
	fmt.Fprintln(w)
	for _, h := range r.Headers {
		fmt.Fprintf(w, "  header    %s: %s\n", h.Name, h.Value)
	}
	if r.BodySize > 0 {
		fmt.Fprintf(w, "  body      %d bytes: %s\n", r.BodySize, r.Body)
		printEnd(w, r)
	}
}

// printEnd prints what is shown of the end of something long.
func printEnd(w io.Writer, r *approval.Request) {
	if r.NotShown == 0 {
		return
	}
	fmt.Fprintf(w, "  NOT SHOWN %d bytes; the SHA-256 of all of it is %s\n", r.NotShown, r.SHA256)
	fmt.Fprintf(w, "  its end   %s\n", r.End)
}

// Copying prints what a capability to copy files allows.
func Copying(w io.Writer, direction string, remote, local []string, maxSize string, overwrite bool) {
	List(w, "direction", []string{Direction(direction)})
	List(w, "remote", remote)
	List(w, "local", local)
	List(w, "at most", []string{maxSize + " in a file"})
	if overwrite {
		List(w, "overwrite", []string{"files that are there may be replaced"})
	}
}

// Direction says which way a file is copied.
func Direction(d string) string { return directionWords[d] }

var directionWords = map[string]string{
	action.Up: "to the host", action.Down: "from the host to this machine", access.Both: "to the host and from it",
}

func printCopy(w io.Writer, r *approval.Request) {
	from, to := "here", "host"
	first, second := r.Local, r.Remote
	if r.Direction == action.Down {
		from, to, first, second = to, from, second, first
	}
	fmt.Fprintf(w, "  copy      %s: %s\n", from, first)
	fmt.Fprintf(w, "  to        %s: %s\n", to, second)
	if r.Overwrite {
		fmt.Fprintln(w, "  overwrite a file that is there is replaced")
	}
}

func printVerified(w io.Writer, v approval.Verified) {
	k, f := v.Agent.Kernel, v.Agent.Filesystem
	fmt.Fprintln(w, "ESTABLISHED BY THE SYSTEM")
	fmt.Fprintf(w, "  program   %s\n", Program(k.ExePath))
	if f.SHA256 != "" {
		fmt.Fprintf(w, "  sha256    %s\n", f.SHA256)
	}
	fmt.Fprintf(w, "  process   pid %d of user %d", k.PID, k.UID)
	if k.TTY != "" {
		fmt.Fprintf(w, " on %s", k.TTY)
	}
	if v.Shim != nil {
		fmt.Fprintf(w, ", through yett-mcp (pid %d)", v.Shim.Kernel.PID)
	}
	fmt.Fprintln(w)
	if chain := chainOf(v); chain != "" {
		fmt.Fprintf(w, "  parents   %s\n", chain)
	}
	if len(v.NotKnown) > 0 {
		fmt.Fprintln(w, "NOT KNOWN")
		for _, what := range v.NotKnown {
			fmt.Fprintf(w, "  %s\n", what)
		}
	}
}

// ancestorsShown is how much of the chain a screen has room for.
const ancestorsShown = 6

// chainOf is what led to the agent, nearest first.
func chainOf(v approval.Verified) string {
	var steps []string
	for i, a := range v.Chain {
		if i == ancestorsShown {
			steps = append(steps, fmt.Sprintf("%d more", len(v.Chain)-i))
			break
		}
		steps = append(steps, fmt.Sprintf("%s (%d)", Program(a.Kernel.ExePath), a.Kernel.PID))
	}
	if v.ChainCut {
		steps = append(steps, "and on, where nobody could look")
	}
	return strings.Join(steps, " ← ")
}

// labelsShown is how many labels a screen has room for.
const labelsShown = 8

func printClaims(w io.Writer, c approval.Claimed) {
	fmt.Fprintln(w, "CLAIMED BY THE AGENT (not established)")
	claim := func(name, text string) { fmt.Fprintf(w, "  %-13s %s\n", name, quoted(shortened(text))) }
	claim("calls itself", strings.TrimSpace(c.Program+" "+c.Version))
	if c.Purpose != "" {
		claim("purpose", c.Purpose)
	}
	if len(c.Process.Argv) > 0 {
		claim("command line", strings.Join(c.Process.Argv, " "))
	}
	if c.Process.Script != "" {
		claim("script", c.Process.Script)
	}
	if c.Process.Cwd != "" {
		claim("directory", c.Process.Cwd)
	}
	labels := make([]string, 0, len(c.Labels))
	for name := range c.Labels {
		labels = append(labels, name)
	}
	slices.Sort(labels)
	for i, name := range labels {
		if i == labelsShown {
			fmt.Fprintf(w, "  (%d more labels: yett pending --json)\n", len(labels)-i)
			break
		}
		claim("label", name+": "+c.Labels[name])
	}
}
