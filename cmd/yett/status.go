package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether the broker runs, is locked, and what waits",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var st wire.Status
			err := a.manage(c.Context(), wire.MethodBrokerStatus, wire.Empty{}, &st)
			if err != nil && a.json && errors.Is(err, &wire.Error{Code: wire.CodeUnavailable}) {
				if loc, locErr := a.location(); locErr == nil {
					printJSON(a.stdout, wire.Status{State: wire.CodeUnavailable, Endpoint: loc.Socket, Profile: "desktop", Home: loc.Home})
				}
			}
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, st)
			}
			fmt.Fprintf(a.stdout, "%s: broker %s at %s\nhome %s, profile %s\n%d waiting, %d sessions%s\n",
				st.State, st.BrokerVersion, st.Endpoint, st.Home, st.Profile, st.Pending, st.Sessions, pausedOf(st))
			if st.Ledger != "ok" {
				fmt.Fprintf(a.stdout, "the ledger %s\n", st.Ledger)
			}
			switch {
			case st.State == "locked":
				fmt.Fprintln(a.stdout, "next: yett unlock")
			case st.Pending > 0:
				fmt.Fprintln(a.stdout, "next: yett pending")
			}
			return nil
		},
	}
}

func pausedOf(st wire.Status) string {
	if st.Paused == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d paused)", st.Paused)
}
