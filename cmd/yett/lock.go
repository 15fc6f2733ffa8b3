package main

import (
	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newLock(a *app) *cobra.Command {
	pause := false
	c := &cobra.Command{
		Use:   "lock",
		Short: "Close the vault and end every session, paused ones too",
		Long: "Closes the vault and ends every session. With --pause the sessions are paused\n" +
			"instead, as when nobody used Yett for a while: yett unlock resumes them.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			method, done := wire.MethodVaultLock, "Locked. Every session has ended."
			if pause {
				method, done = wire.MethodVaultPause, "Locked. Sessions are paused; yett unlock resumes them."
			}
			if err := a.manage(c.Context(), method, wire.Empty{}, nil); err != nil {
				return err
			}
			return a.result(map[string]any{"state": "locked"}, "%s", done)
		},
	}
	c.Flags().BoolVar(&pause, "pause", false, "pause the sessions rather than end them")
	return c
}
