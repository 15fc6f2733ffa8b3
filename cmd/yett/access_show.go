package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newAccessShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the access file that is applied, as it was written",
		Long: "Prints the access file that is applied, with its comments and with what yett add added.\n" +
			"It holds no secret, but names hosts and accounts, so it takes your proof.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.showAccessFile(c.Context()) },
	}
}

func (a *app) showAccessFile(ctx context.Context) error {
	var r wire.AccessText
	if err := a.manageProven(ctx, wire.MethodAccessText, wire.Empty{}, &r); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, r)
	}
	if r.File == "" {
		a.note("Nothing is applied yet.")
	}
	_, err := fmt.Fprint(a.stdout, r.File)
	return err
}
