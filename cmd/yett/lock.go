package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newLock(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "lock",
		Short: "Close the vault and end every session, paused ones too",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.manage(c.Context(), wire.MethodVaultLock, wire.Empty{}, nil); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, map[string]any{"state": "locked"})
			}
			fmt.Fprintln(a.stdout, "Locked. Every session has ended.")
			return nil
		},
	}
}
