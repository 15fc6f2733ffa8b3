package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/trial"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	tryAlone  = 2 * time.Minute  // the whole demonstration when nobody is asked
	tryPerson = 20 * time.Minute // and when a person is
)

func newTry(a *app) *cobra.Command {
	yes := false
	c := &cobra.Command{
		Use:   "try",
		Short: "Show the whole job with real parts in a scratch home",
		Long: "Runs a demo API, an SSH server, a broker of its own in a scratch home, and an agent that\n" +
			"acts through it; then tries what must not work, and lists what was proven. Your own\n" +
			"home and broker are not touched, and nothing is left behind.\n\n" +
			"You approve the agent's card yourself, with a demo passphrase that is shown. With --yes\n" +
			"or YES=1 in the environment the demo does that too.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.try(c.Context(), yes || os.Getenv("YES") == "1")
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "let the demo approve the card by itself")
	return c
}

func (a *app) try(ctx context.Context, yes bool) error {
	if a.home != "" || a.passFD >= 0 {
		return usageError{errors.New("try makes a home and a passphrase of its own")}
	}
	if !yes && !a.personThere() {
		return wire.Errorf(wire.CodeBadRequest, "There is no terminal to approve the card on.").
			Then("Let the demo approve it: YES=1 make try, or yett try --yes.")
	}
	if err := peer.Floor(); err != nil {
		return &wire.Error{Code: wire.CodeInternal, Message: fmt.Sprintf("This system cannot serve: %v.", err), NextStep: "Use Linux 6.5 or later."}
	}
	shim, _, _, err := endpoint.Installed("yett-mcp")
	if err != nil {
		return &wire.Error{Code: wire.CodeInternal, Message: fmt.Sprintf("The shim is missing: %v.", err), NextStep: "Build both programs into one directory: make build."}
	}
	// A closed terminal or pipe ends the demonstration like Ctrl-C does: in
	// order, with everything removed.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	limit := tryPerson
	if yes {
		limit = tryAlone
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	begin := time.Now()
	r, err := trial.Run(ctx, trial.Options{Story: a.narrator(yes), Yes: yes, Stdin: a.stdin, Stderr: a.stderr, Shim: shim})
	return a.tell(r, err, a.narrator(yes), time.Since(begin))
}

// personThere reports whether somebody can be asked on a terminal.
func (a *app) personThere() bool {
	return term.IsTerminal(int(a.stdin.Fd())) && term.IsTerminal(int(a.stderr.Fd()))
}

// narrator is where the story goes: the list that --json prints stands alone
// on standard output.
func (a *app) narrator(yes bool) io.Writer {
	switch {
	case a.json && yes:
		return io.Discard
	case a.json, !yes && !term.IsTerminal(int(a.stdout.Fd())):
		return a.stderr
	}
	return a.stdout
}

// tell prints what was proven and chooses how the command ends.
func (a *app) tell(r trial.Result, err error, story io.Writer, took time.Duration) error {
	ok := err == nil && r.Proven()
	interrupted := errors.Is(err, context.Canceled)
	switch {
	case a.json:
		printJSON(a.stdout, map[string]any{"ok": ok, "seconds": took.Seconds(), "proven": r.Claims})
	case !interrupted:
		r.List(story, took)
	}
	failed := func(format string, args ...any) error {
		return &wire.Error{Code: wire.CodeInternal, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case interrupted && r.Clean:
		return failed("Interrupted. Everything was stopped and removed.")
	case interrupted:
		return failed("Interrupted; something may be left behind in %s.", r.Dir)
	case errors.Is(err, context.DeadlineExceeded):
		return failed("It took too long and was ended.")
	case err != nil:
		return failed("The demonstration did not get to its end: %v", err)
	case !ok:
		return reported{exitFailed}
	}
	return nil
}

// newTryAgent and newTryStranger are processes that the demonstration starts.
func newTryAgent(a *app) *cobra.Command {
	return &cobra.Command{Use: "try-agent", Hidden: true, Args: cobra.NoArgs, Short: "The agent of yett try",
		RunE: func(c *cobra.Command, _ []string) error {
			err := trial.Agent(c.Context(), a.home, version, a.stdin, a.stdout)
			if errors.Is(err, trial.ErrNotStarted) {
				return usageError{errors.New("try-agent is started by yett try")}
			}
			return err
		}}
}

func newTryStranger(a *app) *cobra.Command {
	return &cobra.Command{Use: "try-stranger", Hidden: true, Args: cobra.NoArgs, Short: "The unapproved process of yett try",
		RunE: func(c *cobra.Command, _ []string) error {
			return trial.Stranger(c.Context(), a.home, version, a.stdin, a.stdout)
		}}
}
