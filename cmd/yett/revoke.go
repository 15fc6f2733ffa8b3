package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke SESSION",
		Short: "End one session at once; needs no proof",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.manage(c.Context(), wire.MethodSessionRevoke, wire.SessionID{SessionID: args[0]}, nil); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, map[string]any{"session_id": args[0], "state": "ended"})
			}
			fmt.Fprintln(a.stdout, "Revoked.")
			return nil
		},
	}
}
