package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

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
	units, plans, err := a.planUninstall(place)
	if err != nil {
		return err
	}
	if purge {
		err = a.agreeToPurge(ctx, loc)
	} else {
		err = a.agree(ctx, yes, "Take this away?")
	}
	if err != nil {
		return err
	}
	if err := a.removeUnits(ctx, place, units); err != nil {
		return err
	}
	left := append([]string{}, units.Kept...)
	for _, plan := range plans {
		if _, err := place.Apply(plan); err != nil {
			return cannotConnect(plan.Client, err)
		}
	}
	if purge {
		kept, err := purgeData(loc, place)
		if err != nil {
			return err
		}
		left = append(left, kept...)
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"purged": purge, "left": left})
	}
	for _, path := range left {
		fmt.Fprintf(a.stdout, "left, since it is not Yett's or was changed: %s\n", approval.Printable(path))
	}
	fmt.Fprintln(a.stdout, "Taken away. The programs yett and yett-mcp stay where they are.")
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
	e := wire.Errorf(wire.CodeBadRequest, "The broker is running; nothing was taken away.")
	e.NextStep = "Stop it first: yett stop."
	return e
}

// planUninstall shows what will be taken away.
func (a *app) planUninstall(place install.Place) (*install.UnitPlan, []*install.Plan, error) {
	units, err := place.UninstallUnits()
	if err != nil {
		return nil, nil, cannotInstall(err)
	}
	var plans []*install.Plan
	for _, client := range install.Clients() {
		plan, err := place.Disconnect(client, install.Options{})
		if err != nil {
			return nil, nil, cannotConnect(client, err)
		}
		plans = append(plans, plan)
	}
	if !a.json {
		a.printDifference(units.Difference())
		for _, plan := range plans {
			a.printDifference(plan.Difference())
			for _, note := range plan.Notes {
				fmt.Fprintf(a.stdout, "note: %s\n", approval.Printable(note))
			}
		}
	}
	return units, plans, nil
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
	e := wire.Errorf(wire.CodeInternal, "Not everything was removed: %s.", printable(err.Error()))
	e.NextStep = "Look at what is left, and run it again."
	return e
}
