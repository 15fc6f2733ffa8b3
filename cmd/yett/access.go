package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

func newAccess(a *app) *cobra.Command {
	return parent("access", "Show what agents may ask for", &cobra.Command{
		Use: "list", Short: "List the capabilities that are applied", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var r wire.AccessListResult
			if err := a.manage(c.Context(), wire.MethodAccessShow, wire.Empty{}, &r); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, r.Capabilities)
			}
			if len(r.Capabilities) == 0 {
				return a.nothingListed(c.Context())
			}
			for _, x := range r.Capabilities {
				fmt.Fprintf(a.stdout, "%s  →  %s  (asks: %s)\n", x.Capability, x.Target, x.Confirm)
				screen.List(a.stdout, "methods", x.Methods)
				screen.List(a.stdout, "paths", x.Paths)
				screen.List(a.stdout, "query", x.Query)
				screen.List(a.stdout, "commands", x.Commands)
				if x.PTY {
					screen.List(a.stdout, "terminal", []string{"a command may have one"})
				}
				if x.Direction != "" {
					screen.Copying(a.stdout, x.Direction, x.Remote, x.Local, access.SizeText(x.MaxSize), x.Overwrite)
				}
				if x.Budget != "" {
					screen.List(a.stdout, "budget", []string{x.Budget})
				}
			}
			return nil
		},
	}, newAccessShow(a), newAccessTest(a))
}

// nothingListed says why there is nothing in the list.
func (a *app) nothingListed(ctx context.Context) error {
	var st wire.Status
	if err := a.manage(ctx, wire.MethodBrokerStatus, wire.Empty{}, &st); err != nil {
		return err
	}
	if st.State == "locked" {
		a.note("The broker is locked: nothing can be listed before yett unlock.")
	} else {
		a.note("Nothing is applied: yett add PRESET, or yett apply FILE.")
	}
	return nil
}
