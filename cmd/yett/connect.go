package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/install"
	"github.com/yett-broker/yett/internal/wire"
)

type connectFlags struct {
	config                    string
	allow, yes, print, remove bool
}

func newConnect(a *app) *cobra.Command {
	var f connectFlags
	c := &cobra.Command{
		Use:   "connect [CLIENT]",
		Short: "Enter yett-mcp in the configuration of an agent's host",
		Long: "Shows what it would change in the configuration of an agent's host, asks, and writes\n" +
			"it, with a copy of the file as it was beside it. The entry starts yett-mcp by its\n" +
			"absolute path, without arguments. Without CLIENT it lists the hosts that it knows.\n\n" +
			"With --allow the host may call Yett's tools without asking by itself. Yett asks you\n" +
			"all the same before an agent gets access.",
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var words []cobra.Completion
			for _, client := range install.Clients() {
				if len(args) == 0 {
					words = append(words, cobra.CompletionWithDesc(client.ID, client.Name))
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			place, err := a.place()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if c.Flags().NFlag() > 0 && !a.json {
					return usageError{errors.New("which client? yett connect lists them")}
				}
				return a.listClients(place)
			}
			return a.connect(c.Context(), place, args[0], f)
		},
	}
	c.Flags().StringVar(&f.config, "config", "", "use this `FILE` in place of the usual one")
	c.Flags().BoolVar(&f.allow, "allow", false, "let the host call Yett's tools without asking by itself")
	c.Flags().BoolVar(&f.yes, "yes", false, "write without asking")
	c.Flags().BoolVar(&f.print, "print", false, "print the entry and write nothing")
	c.Flags().BoolVar(&f.remove, "remove", false, "take away what was entered")
	c.MarkFlagsMutuallyExclusive("print", "remove")
	c.MarkFlagsMutuallyExclusive("allow", "remove")
	return c
}

// place is whose files are written: always the account's own, since what is
// written there leads to the account's own broker.
func (a *app) place() (install.Place, error) {
	if a.home != "" {
		return install.Place{}, wire.Errorf(wire.CodeBadRequest, "What is installed leads to the broker of your own home; --home is for tests and cannot be installed.").
			Then("Leave --home out.")
	}
	uid, home, err := endpoint.Account()
	if err != nil {
		return install.Place{}, wire.Errorf(wire.CodeBadRequest, "Your home directory was not found: %v.", err).
			Then("Repair the account's entry in the account database.")
	}
	system := "linux"
	if runtime.GOOS == "darwin" {
		system = "macos"
	}
	return install.Place{Home: home, UID: uid, System: system}, nil
}

// program is the installed program of a name: the file beside this one.
func program(name string) (string, error) {
	path, _, _, err := endpoint.Installed(name)
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(path); err == nil && info.Mode()&0o111 == 0 {
			err = fmt.Errorf("%s is not executable", path)
		}
	}
	if err != nil {
		return "", wire.Errorf(wire.CodeBadRequest, "%s was not found beside yett: %v.", name, err).
			Then("Install both programs into one directory, and run yett from there.")
	}
	return path, nil
}

func (a *app) listClients(place install.Place) error {
	shim, err := program("yett-mcp")
	if err != nil {
		return err
	}
	states := place.States(shim)
	if a.json {
		return printJSON(a.stdout, states)
	}
	for _, s := range states {
		fmt.Fprintf(a.stdout, "%-15s %-19s %-14s %s\n", s.Client, s.Name, s.Word(), approval.Printable(s.File))
	}
	for _, s := range states {
		if s.Problem != "" {
			fmt.Fprintf(a.stdout, "%s: %s\n", s.Client, printable(s.Problem))
		}
	}
	fmt.Fprintln(a.stdout, "next: yett connect CLIENT")
	return nil
}

func (a *app) connect(ctx context.Context, place install.Place, id string, f connectFlags) error {
	client, ok := install.ClientNamed(id)
	if !ok {
		return usageError{fmt.Errorf("there is no client %q; yett connect lists them", id)}
	}
	o := install.Options{Allow: f.allow}
	if f.config != "" {
		path, err := filepath.Abs(f.config)
		if err != nil {
			return err
		}
		o.Config = path
	}
	if f.remove {
		plan, err := place.Disconnect(client, o)
		if err != nil {
			return cannotConnect(client, err)
		}
		return a.carryOut(ctx, place, plan, f, "There is nothing to take away.")
	}
	shim, err := program("yett-mcp")
	if err != nil {
		return err
	}
	if f.print {
		return a.printEntry(place, client, shim, o)
	}
	plan, err := place.Connect(client, shim, o)
	if err != nil {
		return cannotConnect(client, err)
	}
	if !place.Found(client) && f.config == "" {
		plan.Notes = append(plan.Notes, client.Name+" does not seem to be used by this account yet.")
	}
	return a.carryOut(ctx, place, plan, f, "Nothing to do: the entry is there already.")
}

func (a *app) printEntry(place install.Place, client install.Client, shim string, o install.Options) error {
	file, text, err := place.Entry(client, shim, o)
	if err != nil {
		return cannotConnect(client, err)
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"client": client.ID, "file": file, "entry": text})
	}
	a.note("for %s:", approval.Printable(file))
	fmt.Fprintln(a.stdout, strings.TrimRight(text, "\n"))
	return nil
}

// carryOut shows a plan, asks, and writes it.
func (a *app) carryOut(ctx context.Context, place install.Place, plan *install.Plan, f connectFlags, nothing string) error {
	answer := map[string]any{"client": plan.Client.ID, "changed": false, "difference": plan.Difference(), "notes": plan.Notes, "files": []install.Done{}}
	if !a.json {
		a.printDifference(plan.Difference())
		for _, note := range plan.Notes {
			fmt.Fprintf(a.stdout, "note: %s\n", approval.Printable(note))
		}
	}
	if !plan.Changed() {
		return a.result(answer, "%s", nothing)
	}
	if err := a.agree(ctx, f.yes, "Write this?"); err != nil {
		return err
	}
	done, err := place.Apply(plan)
	if err != nil {
		return cannotConnect(plan.Client, err)
	}
	if a.json {
		answer["changed"], answer["files"] = true, done
		return printJSON(a.stdout, answer)
	}
	for _, d := range done {
		fmt.Fprintf(a.stdout, "%s %s\n", d.Word(), approval.Printable(d.Path))
		if d.Backup != "" {
			fmt.Fprintf(a.stdout, "  as it was: %s\n", approval.Printable(d.Backup))
		}
	}
	if !f.remove { // what is switched on after an entry is gone with it
		fmt.Fprintf(a.stdout, "next: %s\n", plan.Client.Restart)
	}
	return nil
}

// longestLine of a difference is shown: some hosts keep all in one.
const longestLine = 240

func (a *app) printDifference(difference string) {
	for line := range strings.Lines(difference) {
		line = strings.TrimRight(line, "\r\n")
		cut := ""
		if len(line) > longestLine {
			line, cut = strings.ToValidUTF8(line[:longestLine], ""), " …"
		}
		tabs := strings.ReplaceAll(line, "\t", "    ")
		fmt.Fprintf(a.stdout, "%s%s\n", approval.Printable(tabs), cut)
	}
}

// agree asks before something is written.
func (a *app) agree(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	refusal := wire.Errorf(wire.CodeBadRequest, "Nothing was written.")
	refusal.NextStep = "Run it in a terminal and type yes, or again with --yes."
	if a.json {
		return refusal
	}
	agreed, err := askYes(ctx, question+" Type yes to go on: ")
	var fail *wire.Error
	switch {
	case errors.As(err, &fail):
		refusal.Message = "Nothing was written: there is no terminal to ask on."
		return refusal
	case err != nil:
		return err
	case !agreed:
		refusal.NextStep = ""
		return refusal
	}
	return nil
}

// cannotConnect says why nothing was written and what to do.
func cannotConnect(client install.Client, err error) error {
	e := wire.Errorf(wire.CodeBadRequest, "%s was left as it is: %s.", client.Name, printable(strings.TrimSuffix(err.Error(), ".")))
	var syntax *install.SyntaxError
	var unsafe *install.UnsafeError
	var record *install.RecordError
	switch {
	case errors.As(err, &syntax):
		e.NextStep = "Correct that line, or let " + client.Name + " do it; then run it again."
	case errors.As(err, &unsafe) && unsafe.Real != "":
		e.NextStep = "If that file is meant, name it: --config " + printable(unsafe.Real) + "."
	case errors.As(err, &unsafe):
		e.NextStep = "Find out how it came to be so; Yett writes to files of your own only."
	case errors.As(err, &record):
		e.NextStep = "Move that file aside; then take the entries away by hand."
	case errors.Is(err, install.ErrTaken):
		e.NextStep = "Rename that server in the file, then run it again."
	case errors.Is(err, install.ErrNoRule):
		e.NextStep = "Run it again without --allow."
	case errors.Is(err, install.ErrChanged):
		e.NextStep = "End " + client.Name + ", or wait until it has written, and run it again."
	default:
		e.NextStep = "Look at the file; nothing else was touched."
	}
	return e
}
