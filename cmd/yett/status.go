package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether the broker runs, is locked, and what waits",
		Long: "Says whether the broker runs, is locked, and what waits. It asks a broker of any\n" +
			"release, also one with which this yett has no other protocol in common.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.status(c.Context()) },
	}
}

func (a *app) status(ctx context.Context) error {
	conn, foreign, err := a.dialAny(ctx)
	if err != nil {
		if a.json && errors.Is(err, &wire.Error{Code: wire.CodeUnavailable}) {
			a.printUnavailable()
		}
		return err
	}
	defer conn.Close()
	var st wire.Status
	if err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, st)
	}
	a.printStatus(st, foreign)
	return nil
}

// printUnavailable prints what is known where nothing answers.
func (a *app) printUnavailable() {
	if loc, err := a.location(); err == nil {
		printJSON(a.stdout, wire.Status{State: wire.CodeUnavailable, Endpoint: loc.Socket, Profile: "desktop", Home: loc.Home})
	}
}

// printStatus prints a status for a person. A broker of another release may
// say anything; foreign is why it speaks no protocol of ours, or nil.
func (a *app) printStatus(st wire.Status, foreign *wire.Error) {
	w, p := a.stdout, approval.Printable
	fmt.Fprintf(w, "%s: broker %s at %s\nhome %s, profile %s\n%d waiting, %s%s\n",
		p(st.State), p(st.BrokerVersion), p(st.Endpoint), p(st.Home), p(st.Profile), st.Pending, screen.HowMany(st.Sessions, "session"), pausedOf(st))
	if st.Ledger != "ok" && st.Ledger != "" {
		fmt.Fprintf(w, "the ledger %s\n", p(st.Ledger))
	}
	switch {
	case st.Console != "":
		fmt.Fprintf(w, "console %s\n", p(st.Console))
	case st.ConsoleProblem != "":
		fmt.Fprintf(w, "no console: %s\n", p(st.ConsoleProblem))
	}
	if st.UpdateWaiting {
		a.advise("an update of yett is installed; it takes effect at the next start, and sessions end then: yett stop, yett up")
	}
	switch {
	case foreign != nil:
		a.advise("this yett %s can only ask for this and stop it: %s\nnext: %s", version, p(foreign.Message), p(foreign.NextStep))
	case st.State == "locked":
		a.advise("next: yett unlock")
	case st.State == wire.CodeQuarantined:
		_, next := wire.Advice(wire.CodeQuarantined)
		a.advise("next: %s", next)
	case st.Pending > 0:
		a.advise("next: yett pending")
	}
}

// dialAny connects to a broker of any release. Where no version is common it
// speaks the stable part; foreign then says which side is older.
func (a *app) dialAny(ctx context.Context) (conn *client.Conn, foreign *wire.Error, err error) {
	conn, err = a.dial(ctx)
	if !errors.Is(err, &wire.Error{Code: wire.CodeProtocolUnsupported}) {
		return conn, nil, err
	}
	errors.As(err, &foreign)
	loc, err := a.location()
	if err != nil {
		return nil, nil, err
	}
	conn, err = client.DialLocation(ctx, loc, client.Options{Program: "yett", Version: version, Role: wire.RoleCLI, Stable: true})
	if err != nil {
		return nil, nil, unavailable(loc, err)
	}
	return conn, foreign, nil
}

func pausedOf(st wire.Status) string {
	if st.Paused == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d paused)", st.Paused)
}
