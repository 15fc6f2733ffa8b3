package main

import (
	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newDeny(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "deny ID",
		Short: "Say no to a card; needs no proof",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.manage(c.Context(), wire.MethodApprovalDeny, wire.ApprovalID{ApprovalID: args[0]}, nil); err != nil {
				return err
			}
			return a.result(map[string]any{"approval_id": args[0], "choice": "deny"}, "Denied.")
		},
	}
}
