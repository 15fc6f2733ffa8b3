package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// printCard prints a card for a person: what was established, what is claimed,
// what a yes gives, and the action in full. Every text in it was escaped where
// the card was written.
func printCard(out io.Writer, p wire.Approval) error {
	w := new(bytes.Buffer)
	var c approval.Card
	if err := json.Unmarshal(p.Card, &c); err != nil {
		return fmt.Errorf("reading a card: %w", err)
	}
	k, f := c.Verified.Agent.Kernel, c.Verified.Agent.Filesystem
	fmt.Fprintf(w, "── %s ── %s ──\n", c.ApprovalID, strings.ToUpper(c.Tag))
	fmt.Fprintln(w, "ESTABLISHED BY THE SYSTEM")
	fmt.Fprintf(w, "  program   %s\n", k.ExePath)
	if f.SHA256 != "" {
		fmt.Fprintf(w, "  sha256    %s\n", f.SHA256)
	} else if f.NotHashed != "" {
		fmt.Fprintf(w, "  sha256    none: %s\n", f.NotHashed)
	}
	fmt.Fprintf(w, "  process   pid %d of user %d", k.PID, k.UID)
	if k.TTY != "" {
		fmt.Fprintf(w, " on %s", k.TTY)
	}
	if c.Verified.Shim != nil {
		fmt.Fprintf(w, ", through yett-mcp (pid %d)", c.Verified.Shim.Kernel.PID)
	}
	fmt.Fprintln(w)
	for _, word := range c.Verified.Words {
		fmt.Fprintf(w, "  NOTE      %s\n", word)
	}
	if c.Verified.Home != "" {
		fmt.Fprintf(w, "  NOTE      a test home: %s\n", c.Verified.Home)
	}
	printClaims(w, c.Claimed)
	printGranting(w, c.Granting, c.Request != nil)
	printRequest(w, c.Request)
	fmt.Fprintf(w, "  %s: %s\n", c.Verified.Profile, c.Verified.Limits)
	fmt.Fprintf(w, "  digest    %s\n  decide by %s\n", p.CardDigest, c.ExpiresAt.Local().Format(time.TimeOnly))
	_, err := io.WriteString(out, wrap(w.String(), widthOf(out)))
	return err
}

// widthOf is the width of a terminal in columns, or a usual one.
func widthOf(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 20 {
			return width
		}
	}
	return 100
}

// wrap breaks long lines itself and marks what goes on: were it left to the
// terminal, text of an agent could be padded so that a part of it begins a line
// and looks like one of ours.
func wrap(text string, width int) string {
	const goesOn = "          ┆ "
	var b strings.Builder
	for line := range strings.Lines(text) {
		column := 0
		for _, r := range line {
			columns := 1
			if r >= 0x1100 && r != '─' && r != '→' && r != '“' && r != '”' && r != '…' {
				columns = 2 // most of what lies beyond is wide; a line too short is no harm
			}
			if column+columns > width && r != '\n' {
				b.WriteString("\n" + goesOn)
				column = len(goesOn) - 2
			}
			b.WriteRune(r)
			column += columns
		}
	}
	return b.String()
}

// quoted sets off what an agent says; its own closing marks do not end ours.
func quoted(s string) string { return "“" + strings.ReplaceAll(s, "”", `\u{201D}`) + "”" }

func printClaims(w io.Writer, c approval.Claimed) {
	fmt.Fprintln(w, "CLAIMED BY THE AGENT (not established)")
	fmt.Fprintf(w, "  calls itself  %s\n", quoted(c.Program+" "+c.Version))
	labels := make([]string, 0, len(c.Labels))
	for name := range c.Labels {
		labels = append(labels, name)
	}
	slices.Sort(labels)
	for _, name := range labels {
		fmt.Fprintf(w, "  %-13s %s\n", name, quoted(c.Labels[name]))
	}
	if c.Purpose != "" {
		fmt.Fprintf(w, "  purpose       %s\n", quoted(c.Purpose))
	}
	if len(c.Process.Argv) > 0 {
		fmt.Fprintf(w, "  command line  %s\n", quoted(strings.Join(c.Process.Argv, " ")))
	}
	if c.Process.Cwd != "" {
		fmt.Fprintf(w, "  directory     %s\n", quoted(c.Process.Cwd))
	}
}

func printGranting(w io.Writer, g approval.Granting, oneAction bool) {
	if oneAction {
		fmt.Fprintln(w, "A YES GIVES (the one action below, once)")
	} else {
		fmt.Fprintf(w, "A YES GIVES (to this one %s, until %s at the longest)\n", g.Unit, g.LongestEnd.Local().Format("2006-01-02 15:04"))
	}
	for _, c := range g.Capabilities {
		fmt.Fprintf(w, "  %s  →  %s\n", c.Name, c.Target)
		if c.Insecure {
			fmt.Fprintln(w, "    INSECURE: the credential goes over plain http")
		}
		if oneAction {
			continue
		}
		if c.Confirm != "" {
			fmt.Fprintln(w, "    each action is asked for again")
		}
		printList(w, "methods", c.Methods)
		printList(w, "paths", c.Paths)
		printList(w, "query", c.Query)
		printList(w, "commands", c.Commands)
		if c.Budget != "" {
			printList(w, "budget", []string{c.Budget})
		}
	}
	if g.Note != "" {
		fmt.Fprintf(w, "  NOTE      %s\n", g.Note)
	}
}

func printRequest(w io.Writer, r *approval.Request) {
	if r == nil {
		return
	}
	fmt.Fprintln(w, "THE ACTION")
	if r.Command != "" {
		fmt.Fprintf(w, "  command   %s\n", r.Command)
		if r.StdinSize > 0 {
			fmt.Fprintf(w, "  stdin     %d bytes: %s\n", r.StdinSize, r.Stdin)
		}
		return
	}
	fmt.Fprintf(w, "  %s %s", r.Method, r.Path)
	if r.Query != "" {
		fmt.Fprintf(w, "?%s", r.Query)
	}
	fmt.Fprintln(w)
	for _, h := range r.Headers {
		fmt.Fprintf(w, "  %s: %s\n", h.Name, h.Value)
	}
	if r.BodySize > 0 {
		fmt.Fprintf(w, "  body      %d bytes: %s\n", r.BodySize, r.Body)
	}
}
