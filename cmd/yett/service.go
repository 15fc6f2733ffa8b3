package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/install"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newService(a *app) *cobra.Command {
	return parent("service", "Let the account's service manager run the broker", newServiceInstall(a), newServiceUninstall(a), newServiceStatus(a))
}

func newServiceInstall(a *app) *cobra.Command {
	yes, print := false, false
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the units that start the broker when it is needed",
		Long: "Shows the units that it would write, asks, writes them and tells the service manager.\n" +
			"The manager then owns the broker's socket and starts the broker, locked, when\n" +
			"somebody connects to it; yett unlock does. Where a package brought the units along,\n" +
			"none are written; the manager is told to use those.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if print {
				return a.printUnits()
			}
			return a.installService(c.Context(), yes)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "write without asking")
	c.Flags().BoolVar(&print, "print", false, "print the units and write nothing")
	return c
}

func newServiceUninstall(a *app) *cobra.Command {
	yes := false
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Take away what yett service install made",
		Long: "Stops the broker that the service manager runs, and removes the units that were\n" +
			"installed. One that was changed since is left and named. Units of a package stay and\n" +
			"are not used any more.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			place, err := a.place()
			if err != nil {
				return err
			}
			return a.uninstallService(c.Context(), place, yes)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "remove without asking")
	return c
}

func newServiceStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether the service is installed, runs, and who owns the broker",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.serviceStatus(c.Context()) },
	}
}

// units are what would be installed for this yett and the account's endpoint.
func (a *app) units(place install.Place) ([]install.Unit, error) {
	loc, err := a.location()
	if err != nil {
		return nil, err
	}
	yett, err := program("yett")
	if err != nil {
		return nil, err
	}
	units, err := place.Units(yett, loc.Socket)
	if err != nil {
		return nil, cannotInstall(err)
	}
	return units, nil
}

func (a *app) printUnits() error {
	place, err := a.place()
	if err != nil {
		return err
	}
	units, err := a.units(place)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, units)
	}
	for i, u := range units {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "# %s\n%s", approval.Printable(u.Path), u.Text)
	}
	return nil
}

func (a *app) installService(ctx context.Context, yes bool) error {
	place, err := a.place()
	if err != nil {
		return err
	}
	units, err := a.units(place)
	if err != nil {
		return err
	}
	m, err := findManager(place)
	if err != nil {
		return noManager(err)
	}
	if err := a.vaultIsThere(); err != nil {
		return err
	}
	before := m.state(ctx)
	if before.packaged(units) {
		return a.usePackaged(ctx, m, before, yes)
	}
	plan, err := place.InstallUnits(units)
	if err != nil {
		return cannotInstall(err)
	}
	if !plan.Changed() && before.Listening {
		return a.installed(plan, false, "Nothing to do: the service is installed.")
	}
	if err := a.noOtherBroker(ctx, before); err != nil {
		return err
	}
	if !a.json {
		a.printDifference(plan.Difference())
	}
	if err := a.agree(ctx, yes, "Write these units and start listening?"); err != nil {
		return err
	}
	if err := place.ApplyUnits(plan); err != nil {
		return cannotInstall(err)
	}
	if err := m.enable(ctx); err != nil {
		return notTaken(err, "They are written. Look at: systemctl --user status yett.socket. yett service uninstall takes them away.")
	}
	return a.installed(plan, true, "Installed. The service manager listens, and starts the broker when somebody connects.")
}

// vaultIsThere refuses what would only fail, again and again.
func (a *app) vaultIsThere() error {
	loc, err := a.location()
	if err != nil || vault.Exists(loc.Home) {
		return err
	}
	return wire.Errorf(wire.CodeBadRequest, "There is no vault yet, and the broker does not start without one. Nothing was written.").
		Then("Make it first: yett init. Then run this again.")
}

func (a *app) installed(plan *install.UnitPlan, changed bool, words string) error {
	paths := []string{}
	for _, f := range plan.Files {
		paths = append(paths, f.Path)
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"changed": changed, "units": paths, "difference": plan.Difference()})
	}
	fmt.Fprintln(a.stdout, words)
	fmt.Fprintln(a.stdout, "next: yett unlock")
	return nil
}

// noOtherBroker refuses while a broker that somebody started by hand has the
// endpoint: the manager would take its path away.
func (a *app) noOtherBroker(ctx context.Context, s managerState) error {
	if s.Listening || s.PID != 0 || !a.brokerAnswers(ctx) {
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "A broker that was started by hand is running; two cannot own one socket. Nothing was written.").
		Then("Stop it first: yett stop. Then run this again.")
}

// brokerAnswers reports whether something listens at the endpoint. Where a
// service manager does, asking would start the broker: ask the manager first.
func (a *app) brokerAnswers(ctx context.Context) bool {
	loc, err := a.location()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := client.DialLocation(ctx, loc, client.Options{Program: "yett", Version: version, Role: wire.RoleCLI})
	if err == nil {
		conn.Close()
		return true
	}
	var u *endpoint.UnavailableError
	return !errors.As(err, &u) || u.Cause != endpoint.NotRunning && u.Cause != endpoint.Stale
}

func (a *app) uninstallService(ctx context.Context, place install.Place, yes bool) error {
	plan, err := place.UninstallUnits()
	if err != nil {
		return cannotInstall(err)
	}
	if m, err := findManager(place); err == nil && !plan.Changed() {
		if s := m.state(ctx); s.Enabled || s.Listening {
			return a.leavePackaged(ctx, m, s, yes)
		}
	}
	if !a.json {
		a.printDifference(plan.Difference())
	}
	if plan.Changed() {
		if err := a.agree(ctx, yes, "Remove these units?"); err != nil {
			return err
		}
	}
	if err := a.removeUnits(ctx, place, plan); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"changed": plan.Changed(), "kept": append([]string{}, plan.Kept...)})
	}
	for _, path := range plan.Kept {
		fmt.Fprintf(a.stdout, "left, since it was changed: %s\n", approval.Printable(path))
	}
	if !plan.Changed() {
		fmt.Fprintln(a.stdout, "There is nothing to take away.")
		return nil
	}
	fmt.Fprintln(a.stdout, "Removed.")
	return nil
}

// removeUnits stops what the manager runs, takes the units away and tells it.
func (a *app) removeUnits(ctx context.Context, place install.Place, plan *install.UnitPlan) error {
	m, err := findManager(place)
	if err == nil && plan.Changed() {
		err = m.disable(ctx)
		if err != nil {
			return notStopped(err)
		}
	}
	if err := place.ApplyUnits(plan); err != nil {
		return cannotInstall(err)
	}
	if m != nil && plan.Changed() {
		return m.reload(ctx)
	}
	return nil
}

// serviceState is what yett service status prints.
type serviceState struct {
	Manager   string   `json:"manager"`
	Installed bool     `json:"installed"`
	Units     []string `json:"units"` // where they lie, of whoever put them there
	Changed   []string `json:"changed"`
	managerState
	Owner string `json:"owner"`
}

// Owners of the broker.
const (
	ownerManager = "service manager"
	ownerHand    = "started by hand"
	ownerNobody  = "nobody"
)

func (a *app) serviceStatus(ctx context.Context) error {
	place, err := a.place()
	if err != nil {
		return err
	}
	there, changed, err := place.Installed()
	if err != nil {
		return cannotInstall(err)
	}
	s := serviceState{Manager: "none", Units: append([]string{}, there...), Changed: append([]string{}, changed...), Owner: ownerNobody}
	m, missing := findManager(place)
	if missing == nil {
		s.Manager, s.managerState = m.name(), m.state(ctx)
	}
	others := s.socketUnit != "" && !slices.Contains(there, s.socketUnit)
	if s.Installed = len(there) > 0; others {
		s.Units = append(s.Units, s.socketUnit)
		s.Installed = s.Installed || s.Enabled || s.Listening
	}
	switch {
	case s.Listening || s.PID != 0:
		s.Owner = ownerManager
		s.Running = s.PID != 0
	case a.brokerAnswers(ctx):
		s.Owner, s.Running = ownerHand, true
	}
	if a.json {
		return printJSON(a.stdout, s)
	}
	fmt.Fprintf(a.stdout, "%s\n", s)
	if others {
		fmt.Fprintf(a.stdout, "units of a package, or of somebody else: %s\n", approval.Printable(s.socketUnit))
	}
	for _, path := range changed {
		fmt.Fprintf(a.stdout, "changed since it was installed: %s\n", approval.Printable(path))
	}
	if missing != nil {
		fmt.Fprintf(a.stdout, "%s\n", sentence(printable(missing.Error())))
	}
	switch {
	case missing != nil:
	case !s.Installed:
		fmt.Fprintln(a.stdout, "next: yett service install")
	case !s.Listening && s.PID == 0:
		fmt.Fprintln(a.stdout, "next: journalctl --user -u yett.service -u yett.socket says why; yett service install listens again")
	}
	return nil
}

func (s serviceState) String() string {
	words := []string{"not installed"}
	if s.Installed {
		words = []string{"installed"}
	}
	switch {
	case s.Running && s.PID != 0:
		words = append(words, fmt.Sprintf("running as process %d", s.PID))
	case s.Running:
		words = append(words, "a broker is running")
	case s.Listening:
		words = append(words, "starts when somebody connects")
	default:
		words = append(words, "not running")
	}
	if s.Owner != ownerNobody {
		words = append(words, "owner: "+s.Owner)
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}

func noManager(err error) error {
	return wire.Errorf(wire.CodeBadRequest, "%s. Nothing was written.", strings.TrimSuffix(sentence(printable(err.Error())), ".")).
		Then("Run the broker without it: yett serve, in a terminal of its own or by whatever starts programs at your login. yett service install --print shows the units.")
}

func cannotInstall(err error) error {
	e := wire.Errorf(wire.CodeBadRequest, "%s.", strings.TrimSuffix(sentence(printable(err.Error())), "."))
	var foreign *install.ForeignError
	var record *install.RecordError
	switch {
	case errors.As(err, &foreign):
		e.NextStep = "Move that file aside, or put your changes beside it: systemctl --user edit. Nothing was written."
	case errors.As(err, &record):
		e.NextStep = "Move that file aside; then remove the units by hand."
	default:
		e.NextStep = "Look at the file; Yett writes to files of your own only."
	}
	return e
}
