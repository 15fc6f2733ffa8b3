package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newAuditAcknowledge(a *app) *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:   "acknowledge",
		Short: "State that you know of changed records, and let actions run again",
		Long: "Where the ledger, its head or the vault is not what the broker left, Yett is\n" +
			"quarantined: it takes no actions. Look at what was found with yett audit verify --rows,\n" +
			"and find out what happened. This records, with your proof, that you know of it. The old\n" +
			"head is kept as evidence, and what decides is taken from the rows that are whole:\n" +
			"an action whose outcome is unknown stays so.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.auditAcknowledge(c.Context(), note) },
	}
	c.Flags().StringVar(&note, "note", "", "what happened, kept in the ledger: `TEXT`")
	return c
}

func (a *app) auditAcknowledge(ctx context.Context, note string) error {
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.openReading(ctx, conn); err != nil {
		return err
	}
	var found wire.Quarantine
	if err := call(ctx, conn, wire.MethodLedgerFound, wire.Empty{}, nil, &found); err != nil {
		return err
	}
	if found.Found != "" {
		a.note("Found: %s.", printable(found.Found))
	}
	var done wire.Acknowledged
	if err := a.prove(ctx, conn, wire.MethodLedgerAccept, wire.Acknowledge{Note: note}, &done); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, done)
	}
	fmt.Fprintf(a.stdout, "Recorded in row %d: %s.\n", done.Row, printable(done.Found))
	if done.HeadKeptIn != "" {
		fmt.Fprintf(a.stdout, "The old head is kept in %s. Actions may run again.\n", printable(done.HeadKeptIn))
	}
	return nil
}
