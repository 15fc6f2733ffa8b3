package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

func newRevoke(a *app) *cobra.Command {
	var r wire.Revoke
	c := &cobra.Command{
		Use:   "revoke SESSION | revoke --pid N | revoke --all",
		Short: "End one session or several at once; needs no proof",
		Long: "Ends one session, those of one process, or all of them, with their grants and waiting\n" +
			"cards. The process is the agent, or the yett-mcp that it asks through, as ps shows it: so\n" +
			"nobody needs the passphrase to take access away. The vault stays open; yett lock closes it.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.SessionID = args[0]
			}
			byPID := c.Flags().Changed("pid")
			switch {
			case byPID && r.PID < 1:
				return usageError{errors.New("--pid takes the number of a process")}
			case r.SessionID == "" && !byPID && !r.All:
				return usageError{errors.New("which session? Give its id, --pid or --all")}
			case r.SessionID != "" && (byPID || r.All):
				return usageError{errors.New("a session, --pid and --all exclude each other")}
			}
			return a.revoke(c.Context(), r)
		},
	}
	c.Flags().IntVar(&r.PID, "pid", 0, "every session of the process `N`")
	c.Flags().BoolVar(&r.All, "all", false, "every session")
	c.MarkFlagsMutuallyExclusive("pid", "all")
	return c
}

func (a *app) revoke(ctx context.Context, r wire.Revoke) error {
	var done wire.Revoked
	if err := a.manage(ctx, wire.MethodSessionRevoke, r, &done); err != nil {
		return err
	}
	if r.PID != 0 && done.Sessions == 0 {
		return wire.Errorf(wire.CodeBadRequest, "No session of process %d lives.", r.PID).
			Then("See which processes have one: yett sessions. End all of them: yett revoke --all.")
	}
	return a.result(map[string]any{"state": "ended", "sessions": done.Sessions}, "%s ended.", screen.HowMany(done.Sessions, "session"))
}
