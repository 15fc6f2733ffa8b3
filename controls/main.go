// Controls shows that the tests of Yett's controls can fail. Each row of the
// TOML files beside it names a control, the text that is the control, what
// that text becomes with the control removed, and the tests that attack it.
// The program builds a tree in which only that text differs, by an overlay of
// the build, and expects every one of these tests to fail there. A test that
// passes without its control proves nothing: the program says so and exits 1.
//
// It trusts the rows and the tree. It changes no file of the tree.
//
//	[[control]]
//	name    = "what the control does, as a sentence"
//	file    = "internal/broker/envelope.go"
//	old     = '''text that stands exactly once in the file'''
//	new     = '''what it becomes with the control removed'''
//	package = "./internal/yetttest"
//	tests   = ["TestAttackStolenSessionID"]
//
//	[[control.also]]           # where a second line holds the same thing,
//	file = "…"                 # it is removed together with the first
//	old  = '''…'''
//	new  = '''…'''
//
//	[[shown]]                  # an attack that cannot be refused
//	test  = "TestAttackTracedAgent"
//	where = "where the person sees it"
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"text/tabwriter"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("controls", flag.ContinueOnError)
	flags.SetOutput(stderr)
	room := flags.String("room", "", "only the rows of this `room` (the file's name without .toml)")
	match := flags.String("run", "", "only rows with a name or a test that matches `regexp`")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintln(stderr, "controls: no arguments, only flags")
		return 2
	}
	wanted, err := regexp.Compile(*match)
	if err != nil {
		fmt.Fprintln(stderr, "controls:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := tryAll(ctx, *room, wanted, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "controls:", err)
		return 1
	}
	if *asJSON {
		err = json.NewEncoder(stdout).Encode(results)
	} else {
		err = printTable(stdout, results)
	}
	if err != nil {
		fmt.Fprintln(stderr, "controls:", err)
		return 1
	}
	return verdict(results, stderr)
}

// tryAll removes each wanted control in turn.
func tryAll(ctx context.Context, room string, wanted *regexp.Regexp, progress io.Writer) ([]result, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := readTables(root)
	if err != nil {
		return nil, err
	}
	rows := choose(tables, room, wanted)
	if len(rows) == 0 {
		return nil, fmt.Errorf("no row is meant by these flags")
	}
	before, err := tryUnchanged(ctx, root, rows, progress)
	if err != nil {
		return nil, err
	}
	results := []result{}
	for i, r := range rows {
		fmt.Fprintf(progress, "%d of %d: %s: %s\n", i+1, len(rows), r.room, r.Name)
		results = append(results, tryRow(ctx, root, r, before, progress)...)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted at row %d", i+1)
		}
	}
	return results, nil
}

func printTable(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 0, 4, 1, ' ', 0)
	fmt.Fprintln(t, "control\t| test\t| failed with the control removed?")
	for _, r := range results {
		fmt.Fprintf(t, "%s: %s\t| %s\t| %s\n", r.Room, r.Control, r.Test, r.answer())
	}
	return t.Flush()
}

// verdict counts what survived.
func verdict(results []result, stderr io.Writer) int {
	survived := 0
	for _, r := range results {
		if !r.Failed {
			survived++
		}
	}
	fmt.Fprintf(stderr, "%d of %d failed with the control removed\n", len(results)-survived, len(results))
	if survived > 0 {
		return 1
	}
	return 0
}
