package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/doctor"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look whether everything is in order, and change nothing",
		Long: "Looks at the endpoint and who listens there, the programs on disk, the data\n" +
			"directory, the vault, the ledger, the clients that were told of yett-mcp, and what\n" +
			"the system gives. Changes nothing. Exits with 1 if something does not work or is\n" +
			"unsafe.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context()) },
	}
}

// check is one finding as yett doctor prints it.
type check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Found    string `json:"found"`
	NextStep string `json:"next_step"`

	level doctor.Level
}

func (a *app) doctor(ctx context.Context) error {
	loc, err := a.location()
	if err != nil {
		return err
	}
	report := a.examine(ctx, loc)
	checks := make([]check, 0, len(report.Findings))
	for _, f := range report.Findings {
		checks = append(checks, check{Name: f.Check, OK: f.Level != doctor.Bad, Found: f.Found, NextStep: a.advice(f.Cause), level: f.Level})
	}
	if a.json {
		if err := printJSON(a.stdout, map[string]any{"ok": report.OK(), "checks": checks}); err != nil {
			return err
		}
	} else {
		a.printChecks(checks)
	}
	if !report.OK() {
		return reported{exitFailed}
	}
	return nil
}

// statusTime is how long the broker may take to say how it is.
const statusTime = 5 * time.Second

// examine asks the broker how it is and looks at everything else.
func (a *app) examine(ctx context.Context, loc endpoint.Location) doctor.Report {
	s := doctor.Subject{Location: loc, Version: version, Accounts: accountHomes(), Clients: clientFiles()}
	s.Project, _ = os.Getwd() // without one no project is looked at
	ask, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var st wire.Status
	if err := a.manage(ask, wire.MethodBrokerStatus, wire.Empty{}, &st); err == nil {
		s.Broker = &st
	}
	return doctor.Examine(ctx, s)
}

// accountHomes are the home directories in which programs of this account keep
// their files: that of the account database, and HOME, which most obey.
func accountHomes() []string {
	var homes []string
	if _, home, err := endpoint.Account(); err == nil {
		homes = append(homes, home)
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && !slices.Contains(homes, filepath.Clean(home)) {
		homes = append(homes, filepath.Clean(home))
	}
	return homes
}

func (a *app) printChecks(checks []check) {
	counts := map[doctor.Level]int{}
	for _, c := range checks {
		counts[c.level]++
		fmt.Fprintf(a.stdout, "%-7s %s: %s\n", [...]string{"ok", "note", "PROBLEM"}[c.level], c.Name, c.Found)
		if c.NextStep != "" {
			fmt.Fprintf(a.stdout, "        next: %s\n", c.NextStep)
		}
	}
	fmt.Fprintf(a.stdout, "\n%d in order, %d to know of, %d to mend\n", counts[doctor.Good], counts[doctor.Weaker], counts[doctor.Bad])
}
