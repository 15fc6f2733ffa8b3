package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/install"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newUninstall(a *app) *cobra.Command {
	purge, yes := false, false
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Take away the service and the clients' entries; with --purge the data too",
		Long: "Takes away the units of yett service install and the entries of yett connect, after\n" +
			"showing them. With --purge it removes the vault and the ledger too, once you have\n" +
			"typed a word at the terminal: nothing brings them back. The programs stay.\n\n" +
			"It does nothing while the broker runs.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.uninstall(c.Context(), purge, yes) },
	}
	c.Flags().BoolVar(&purge, "purge", false, "remove the vault and the ledger too")
	c.Flags().BoolVar(&yes, "yes", false, "take away service and entries without asking; the data never")
	return c
}

func (a *app) uninstall(ctx context.Context, purge, yes bool) error {
	place, err := a.place()
	if err != nil {
		return err
	}
	loc, err := a.location()
	if err != nil {
		return err
	}
	if err := a.nothingRuns(ctx, place); err != nil {
		return err
	}
	l, err := a.planUninstall(ctx, place, purge)
	if err != nil {
		return err
	}
	there, err := place.DataThere(loc.Home)
	switch {
	case purge && err != nil:
		return cannotPurge(err)
	case !l.changes() && !(purge && there):
		return a.uninstalled(purge, l, "There is nothing to take away.")
	case purge:
		err = a.agreeToPurge(ctx, loc)
	default:
		err = a.agree(ctx, yes, "Take this away?")
	}
	if err != nil {
		return err
	}
	if err := a.takeOut(ctx, place, l); err != nil {
		return err
	}
	if purge {
		kept, err := purgeData(loc, place)
		if err != nil {
			return err
		}
		l.left = append(l.left, kept...)
	}
	return a.uninstalled(purge, l, "Taken away. The programs yett and yett-mcp stay where they are.")
}

func (a *app) uninstalled(purge bool, l leaving, words string) error {
	if a.json {
		return printJSON(a.stdout, map[string]any{"purged": purge, "left": append([]string{}, l.left...), "problems": append([]string{}, l.problems...)})
	}
	for _, path := range l.left {
		fmt.Fprintf(a.stdout, "left, since it is not Yett's or was changed: %s\n", approval.Printable(path))
	}
	for _, p := range l.problems {
		fmt.Fprintf(a.stdout, "left: %s\n", printable(p))
	}
	fmt.Fprintln(a.stdout, words)
	return nil
}

// nothingRuns refuses while a broker does, whoever started it.
func (a *app) nothingRuns(ctx context.Context, place install.Place) error {
	listening := false
	if m, err := findManager(place); err == nil {
		s := m.state(ctx)
		if s.PID != 0 {
			return stillRuns()
		}
		listening = s.Listening // asking would start it
	}
	if !listening && a.brokerAnswers(ctx) {
		return stillRuns()
	}
	return nil
}

func stillRuns() error {
	return wire.Errorf(wire.CodeBadRequest, "The broker is running; nothing was taken away.").
		Then("Stop it first: yett stop.")
}

// leaving is what will be taken away, and what will not.
type leaving struct {
	units    *install.UnitPlan // nil: not known
	packaged string            // the unit of somebody else by which the manager listens
	plans    []*install.Plan
	left     []string // paths
	problems []string // what could not be read, and so is not touched
}

func (l leaving) changes() bool {
	return l.units != nil && l.units.Changed() || l.packaged != "" || slices.ContainsFunc(l.plans, (*install.Plan).Changed)
}

// planUninstall shows what will be taken away. A configuration that its client
// itself could not read keeps nobody from leaving: it is named and stays. With
// purge that holds for Yett's own record too, which goes with the data.
func (a *app) planUninstall(ctx context.Context, place install.Place, purge bool) (l leaving, err error) {
	if l.units, err = place.UninstallUnits(); err != nil {
		if !purge {
			return l, cannotInstall(err)
		}
		l.units = nil
		l.problems = append(l.problems, err.Error()+"; what it names of units and entries has to be taken away by hand")
	}
	if l.units != nil {
		l.left = append(l.left, l.units.Kept...)
	}
	if m, err := findManager(place); err == nil && (l.units == nil || !l.units.Changed()) {
		if s := m.state(ctx); s.Enabled || s.Listening {
			l.packaged = s.socketUnit
		}
	}
	for _, client := range install.Clients() {
		plan, err := place.Disconnect(client, install.Options{})
		var record *install.RecordError
		switch {
		case errors.As(err, &record) && purge: // it was named above
		case errors.As(err, &record):
			return l, cannotConnect(client, err)
		case err != nil:
			l.problems = append(l.problems, fmt.Sprintf("%s: %v; if yett stands in it, take it out by hand", client.Name, err))
		default:
			l.plans = append(l.plans, plan)
		}
	}
	if !a.json {
		if l.units != nil {
			a.printDifference(l.units.Difference())
		}
		if l.packaged != "" {
			fmt.Fprintf(a.stdout, "note: %s was put there by somebody else, as a package does; it stays, and is not used any more.\n", approval.Printable(l.packaged))
		}
		for _, plan := range l.plans {
			a.printDifference(plan.Difference())
			for _, note := range plan.Notes {
				fmt.Fprintf(a.stdout, "note: %s\n", approval.Printable(note))
			}
		}
	}
	return l, nil
}

func (a *app) takeOut(ctx context.Context, place install.Place, l leaving) error {
	if m, err := findManager(place); err == nil && l.packaged != "" {
		if err := m.disable(ctx); err != nil {
			return notStopped(err)
		}
	}
	if l.units != nil {
		if err := a.removeUnits(ctx, place, l.units); err != nil {
			return err
		}
	}
	for _, plan := range l.plans {
		if _, err := place.Apply(plan); err != nil {
			return cannotConnect(plan.Client, err)
		}
	}
	return nil
}

// purgeWord is what a person types who means it.
const purgeWord = "purge"

func (a *app) agreeToPurge(ctx context.Context, loc endpoint.Location) error {
	refusal := wire.Errorf(wire.CodeBadRequest, "Nothing was removed.")
	refusal.NextStep = "Run it in a terminal and type " + purgeWord + "; there is no flag that answers this. yett vault backup keeps a copy of the vault."
	if a.json {
		return refusal
	}
	what := "what Yett keeps"
	if vault.Exists(loc.Home) {
		what = "the vault with every credential in it, and the ledger"
	}
	fmt.Fprintf(a.stdout, "This removes %s, in %s. Nothing brings it back.\n", what, approval.Printable(loc.Home))
	answer, err := ask(ctx, "Type "+purgeWord+" to go on: ", false)
	var fail *wire.Error
	if errors.As(err, &fail) { // there is no terminal
		return refusal
	}
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(answer)) != purgeWord {
		refusal.NextStep = ""
		return refusal
	}
	return nil
}

// purgeData removes the data while no broker can start, and names what it left.
func purgeData(loc endpoint.Location, place install.Place) ([]string, error) {
	there, err := place.DataThere(loc.Home)
	if err != nil {
		return nil, cannotPurge(err)
	}
	if there {
		release, err := endpoint.Hold(loc)
		if err != nil {
			return nil, brokerInTheWay(loc, err)
		}
		defer release()
	}
	left, err := place.Purge(loc.Home)
	if err != nil {
		return nil, cannotPurge(err)
	}
	return left, nil
}

func cannotPurge(err error) error {
	return wire.Errorf(wire.CodeInternal, "Not everything was removed: %s.", printable(err.Error())).
		Then("Look at what is left, and run it again.")
}
