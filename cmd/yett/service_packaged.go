package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/install"
	"github.com/yett-broker/yett/internal/wire"
)

// packaged reports whether units that somebody else put there, as a package
// does, start the yett that would be installed.
func (s managerState) packaged(units []install.Unit) bool {
	if s.socketUnit == "" || slices.ContainsFunc(units, func(u install.Unit) bool { return u.Path == s.socketUnit }) {
		return false
	}
	yett, err := program("yett")
	if err != nil {
		return false
	}
	ours, err := os.Stat(yett)
	if err != nil {
		return false
	}
	theirs, err := os.Stat(s.starts)
	return err == nil && os.SameFile(ours, theirs)
}

// usePackaged tells the manager to use the units of a package.
func (a *app) usePackaged(ctx context.Context, m *manager, s managerState, yes bool) error {
	if s.Enabled && s.Listening {
		return a.installed(&install.UnitPlan{}, false, "Nothing to do: the service is installed.")
	}
	if err := a.noOtherBroker(ctx, s); err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.stdout, "The units are there: %s starts this yett.\n", approval.Printable(s.socketUnit))
	}
	if err := a.agree(ctx, yes, "Listen now and at every login?"); err != nil {
		return err
	}
	if err := m.enable(ctx); err != nil {
		return notTaken(err, "systemctl --user status yett.socket says more.")
	}
	return a.installed(&install.UnitPlan{}, true, "Installed. The service manager listens, and starts the broker when somebody connects.")
}

func notTaken(err error, next string) error {
	return wire.Errorf(wire.CodeInternal, "The service manager did not take the units: %s.", printable(err.Error())).
		Then(next)
}

// leavePackaged tells the manager to use the units of a package no more.
func (a *app) leavePackaged(ctx context.Context, m *manager, s managerState, yes bool) error {
	if !a.json {
		fmt.Fprintf(a.stdout, "The units were put there by somebody else, as a package does, and stay: %s\n", approval.Printable(s.socketUnit))
	}
	if err := a.agree(ctx, yes, "Stop listening, now and at every login?"); err != nil {
		return err
	}
	if err := m.disable(ctx); err != nil {
		return notStopped(err)
	}
	return a.result(map[string]any{"changed": true, "kept": []string{s.socketUnit}}, "Not used any more.")
}

func notStopped(err error) error {
	return wire.Errorf(wire.CodeInternal, "The service manager did not stop the broker: %s. Nothing was removed.", printable(err.Error())).
		Then("Look at: systemctl --user status yett.socket yett.service.")
}
