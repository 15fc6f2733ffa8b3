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
	"runtime"
	"syscall"
	"text/tabwriter"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	choice
	results  string
	parallel int
	json     bool
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "controls:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := tryAll(ctx, o, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "controls:", err)
		return 1
	}
	if o.json {
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

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("controls", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.room, "room", "", "only the rows of this `room` (the file's name without .toml)")
	match := flags.String("run", "", "only rows with a name or a test that matches `regexp`")
	flags.StringVar(&o.since, "since", "", "only rows that differ from `revision`, or whose changed files or tests do")
	flags.IntVar(&o.sample, "sample", 0, "only `n` of these rows, chosen at random")
	flags.Uint64Var(&o.seed, "seed", 0, "choose the sample that this `number` stands for (0: another one each time)")
	flags.StringVar(&o.results, "results", "", "add what was seen to `file`, and leave out the rows that it has seen fail as they are now")
	flags.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "try so many rows at a time, each of another package")
	flags.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("no arguments, only flags")
	}
	if o.sample < 0 || o.parallel < 1 {
		return o, fmt.Errorf("-sample and -parallel are not negative, and -parallel not 0")
	}
	var err error
	o.match, err = regexp.Compile(*match)
	return o, err
}

// tryAll removes each wanted control in turn.
func tryAll(ctx context.Context, o options, progress io.Writer) ([]result, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := readTables(root)
	if err != nil {
		return nil, err
	}
	rows, err := o.choose(ctx, root, tables, progress)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no row is meant by these flags")
	}
	seen, err := openResults(o.results)
	if err != nil {
		return nil, err
	}
	defer seen.close()
	p := plan{root: root, parallel: o.parallel, progress: progress, seen: seen}
	return p.try(ctx, rows)
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
