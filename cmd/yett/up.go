package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newUp(a *app) *cobra.Command {
	recoveryFD := -1
	c := &cobra.Command{
		Use:   "up",
		Short: "Make everything ready: vault, broker, unlocked",
		Long: "Makes the vault if there is none, as yett init does; starts the broker if none runs;\n" +
			"and unlocks it. Run again it says what is there already. The broker goes on when the\n" +
			"terminal closes; yett stop ends it. Where yett service install was run, the service\n" +
			"manager runs it; else its log is broker.log in the data directory.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.up(c.Context(), recoveryFD) },
	}
	c.Flags().IntVar(&recoveryFD, "recovery-fd", -1, "write the recovery code of a new vault to file descriptor `N`")
	return c
}

// upDone is what yett up found and did.
type upDone struct {
	State         string      `json:"state"`
	Home          string      `json:"home"`
	Endpoint      string      `json:"endpoint"`
	Vault         string      `json:"vault"`                    // made or there
	RecoveryShown *bool       `json:"recovery_shown,omitempty"` // of a vault that was made
	Broker        string      `json:"broker"`                   // running, started, or service: started by its manager
	Unlocked      bool        `json:"unlocked"`                 // by this command
	Client        clientEntry `json:"client"`

	opened wire.Unlocked
}

// up takes the steps that are still missing. Whatever it needs from the person
// is asked for before it starts anything.
func (a *app) up(ctx context.Context, recoveryFD int) error {
	if err := a.ownDescriptors(map[string]int{"recovery-fd": recoveryFD}); err != nil {
		return err
	}
	loc, err := a.location()
	if err != nil {
		return err
	}
	done := upDone{Home: loc.Home, Endpoint: loc.Socket, Vault: "there", Broker: "running", Client: entryOf(loc)}
	if err := a.vaultIfMissing(ctx, loc, recoveryFD, &done); err != nil {
		return err
	}
	conn, err := a.dialRunning(ctx, loc)
	if err == nil && conn == nil {
		conn, err = a.start(ctx, loc, &done)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.openIfLocked(ctx, conn, &done); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, done)
	}
	a.printUp(ctx, conn, loc, done)
	return nil
}

// vaultIfMissing comes first: a service manager would start a broker, in vain,
// for whoever asks whether one is there.
func (a *app) vaultIfMissing(ctx context.Context, loc endpoint.Location, recoveryFD int, done *upDone) error {
	if vault.Exists(loc.Home) {
		return nil
	}
	a.note("There is no vault yet; this makes one. Its passphrase opens it and approves what agents ask for.")
	shown, err := a.createVault(ctx, loc, recoveryFD)
	if err != nil {
		return err
	}
	done.Vault, done.RecoveryShown = "made", &shown
	if !a.json {
		a.printCreated(loc, shown)
	}
	return nil
}

// dialRunning connects to the broker, or returns nil where none runs.
func (a *app) dialRunning(ctx context.Context, loc endpoint.Location) (*client.Conn, error) {
	conn, err := client.DialLocation(ctx, loc, client.Options{Program: "yett", Version: version, Role: wire.RoleCLI})
	var u *endpoint.UnavailableError
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, &u) && (u.Cause == endpoint.NotRunning || u.Cause == endpoint.Stale):
		return nil, nil
	case errors.As(err, &u) && u.Cause == endpoint.Starting:
		return a.awaitBroker(ctx, loc, nil)
	}
	return nil, unavailable(loc, err)
}

// start starts the broker: by the service manager where it has that task, else
// in the background. The passphrase comes before: nothing is started for nobody
// who could unlock it.
func (a *app) start(ctx context.Context, loc endpoint.Location, done *upDone) (*client.Conn, error) {
	if _, err := a.secretPhrase(ctx, "Yett passphrase: "); err != nil {
		return nil, err
	}
	if m := a.serviceManager(ctx, loc); m != nil {
		if err := m.enable(ctx); err != nil {
			return nil, cannotStart(loc, err)
		}
		done.Broker = "service"
		return a.awaitBroker(ctx, loc, nil)
	}
	return a.startBroker(ctx, loc, done)
}

// serviceManager is the manager that is to run the broker, or nil: no service
// was installed, or the person disabled it since.
func (a *app) serviceManager(ctx context.Context, loc endpoint.Location) *manager {
	if loc.Test {
		return nil
	}
	place, err := a.place()
	if err != nil {
		return nil
	}
	m, err := findManager(place)
	if err != nil || !m.state(ctx).Enabled {
		return nil
	}
	return m
}

func (a *app) openIfLocked(ctx context.Context, conn *client.Conn, done *upDone) error {
	var st wire.Status
	if err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st); err != nil {
		return err
	}
	if done.State = st.State; st.State != "locked" {
		return nil
	}
	if err := a.showPaused(ctx, conn); err != nil {
		return err
	}
	opened, err := a.unlockIfLocked(ctx, conn)
	if err != nil {
		return err
	}
	done.State, done.Unlocked, done.opened = "ready", true, opened
	return nil
}

func (a *app) printUp(ctx context.Context, conn *client.Conn, loc endpoint.Location, done upDone) {
	if done.Unlocked {
		a.printUnlocked(done.opened)
	}
	was := "Yett is up."
	if done.Broker == "running" && !done.Unlocked {
		was = "Yett is up already."
	}
	if done.Broker == "service" {
		fmt.Fprintf(a.stdout, "%s The service manager runs the broker.\n", was)
	} else {
		a.advise("%s The broker runs in the background; yett stop ends it.", was)
	}
	if st := a.statusOf(ctx, conn); st.Console != "" {
		a.advise("console: %s (yett console opens it)", st.Console)
	}
	next := "next: "
	if known := a.applied(ctx, conn); known > 0 {
		a.advise("%s can be asked for; yett add PRESET adds more.", screen.HowMany(known, "capability"))
	} else {
		a.advise("%syett add PRESET     a token or a key, and what agents may ask for with it (yett add lists the presets)", next)
		next = "      "
	}
	if names := a.connected(loc, done.Client); len(names) > 0 {
		fmt.Fprintf(a.stdout, "%s: connected.\n", strings.Join(names, ", "))
		if next == "next: " {
			a.advise("%slet an agent ask, then: yett pending", next)
		}
		return
	}
	a.printClient(loc, done.Client, next)
}

// statusOf is how the broker is, as far as it says.
func (a *app) statusOf(ctx context.Context, conn *client.Conn) (st wire.Status) {
	call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st) // what is not known is not printed
	return st
}

// applied is how many capabilities can be asked for, 0 if that is not known.
func (a *app) applied(ctx context.Context, conn *client.Conn) int {
	var r wire.AccessListResult
	if call(ctx, conn, wire.MethodAccessShow, wire.Empty{}, nil, &r) != nil {
		return 0
	}
	return len(r.Capabilities)
}

// connected are the agents' programs that start this yett-mcp already.
func (a *app) connected(loc endpoint.Location, e clientEntry) (names []string) {
	if loc.Test || e.Command == "" {
		return nil
	}
	place, err := a.place()
	if err != nil {
		return nil
	}
	for _, s := range place.States(e.Command) {
		if s.Connected {
			names = append(names, s.Name)
		}
	}
	return names
}

// clientEntry is how an agent's program starts yett-mcp.
type clientEntry struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
}

// entryOf is empty where yett-mcp does not lie beside this program.
func entryOf(loc endpoint.Location) clientEntry {
	path, _, _, err := endpoint.Installed("yett-mcp")
	if err != nil {
		return clientEntry{}
	}
	e := clientEntry{Command: path}
	if loc.Test {
		e.Args = []string{"--home", loc.Home}
	}
	return e
}

// printClient prints the entry in the form that most clients read. Its first
// line begins with next, or with as many blanks.
func (a *app) printClient(loc endpoint.Location, e clientEntry, next string) {
	if e.Command == "" {
		a.advise("%syett-mcp is missing beside yett: install both in one directory, then run yett up again", next)
		return
	}
	if loc.Test { // yett connect enters the broker of the account's own home only
		fmt.Fprintln(a.stdout, next+"tell an agent's program about yett-mcp; most read this entry:")
	} else {
		fmt.Fprintln(a.stdout, next+"yett connect CLIENT    tells an agent's program about yett-mcp; those it does not know read this entry:")
	}
	text, _ := json.Marshal(map[string]any{"mcpServers": map[string]any{"yett": e}})
	fmt.Fprintf(a.stdout, "      %s\n", asciiJSON(text))
}
