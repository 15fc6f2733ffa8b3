package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newUnlock(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "unlock",
		Short: "Open the vault of the running broker",
		Long:  "Opens the vault with the passphrase, or with the recovery code in its place. The\npassphrase itself is not sent: the broker gets a key that was derived from it.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			conn, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			slot, keys, _, err := a.challenged(ctx, conn)
			if err != nil {
				return err
			}
			raw, err := json.Marshal(wire.Unlock{Slot: slot, UnlockKey: keys.Unlock})
			if err != nil {
				return err
			}
			defer clear(raw)
			if err := callRaw(ctx, conn, wire.MethodVaultUnlock, raw, nil, nil); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, map[string]any{"state": "ready"})
			}
			fmt.Fprintln(a.stdout, "Unlocked.")
			return nil
		},
	}
}
