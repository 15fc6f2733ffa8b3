package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

func newOperation(a *app) *cobra.Command {
	return parent("operation", "Look at one operation, or say what became of it", newOperationShow(a), newOperationResolve(a))
}

func newOperationShow(a *app) *cobra.Command {
	body, stream := false, bodies.Body
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show one operation with its rows, or what it answered",
		Long: "Shows the state of one operation and its rows of the ledger: the intent, the end, and\n" +
			"what a person said about it. With --body, and your proof, the body of its answer goes to\n" +
			"standard output as long as it is kept; on a terminal only what draws itself.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if body || c.Flags().Changed("stream") {
				return a.showBody(c.Context(), args[0], stream)
			}
			return a.showOperation(c.Context(), args[0])
		},
	}
	c.Flags().BoolVar(&body, "body", false, "write the body of the answer, or standard output")
	c.Flags().StringVar(&stream, "stream", bodies.Body, "another one: stderr, stdout-tail or stderr-tail")
	return c
}

func (a *app) showOperation(ctx context.Context, id string) error {
	var op wire.OperationShown
	if err := a.read(ctx, wire.MethodOperationShow, wire.OperationID{OperationID: id}, &op); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, op)
	}
	fmt.Fprintf(a.stdout, "%s: %s%s, of %s, session %s\n", printable(op.OperationID), printable(op.State), inBrackets(op.Code),
		op.CreatedAt.Local().Format("2006-01-02 15:04:05"), printable(op.SessionID))
	rows := newActivityPrinter(a)
	for _, raw := range op.Rows {
		var row ledger.Row
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("reading a row: %w", err)
		}
		if err := rows.print(raw, row); err != nil {
			return err
		}
	}
	for _, s := range op.Bodies {
		a.advise("%s: yett operation show %s --stream %s", s, printable(op.OperationID), s)
	}
	if op.State == string(action.Indeterminate) && op.ResolvedRow == 0 {
		a.advise("next: check at the other side, then yett operation resolve %s --happened, or --did-not-happen", printable(op.OperationID))
	}
	return nil
}

func inBrackets(code string) string {
	if code == "" {
		return ""
	}
	return " (" + printable(code) + ")"
}

func newOperationResolve(a *app) *cobra.Command {
	var happened, not bool
	var note string
	c := &cobra.Command{
		Use:   "resolve ID",
		Short: "Say what became of an action whose outcome is unknown",
		Long: "Records, with your proof, what you found out about an action whose outcome is unknown:\n" +
			"that it happened, or that it did not. From then on an equal action may run again. The\n" +
			"operation itself stays indeterminate: what the broker knew does not change.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if happened == not {
				return usageError{errors.New("say what you found: --happened or --did-not-happen")}
			}
			return a.resolveOperation(c.Context(), wire.OperationResolve{OperationID: args[0], Happened: happened, Note: note})
		},
	}
	c.Flags().BoolVar(&happened, "happened", false, "it did happen")
	c.Flags().BoolVar(&not, "did-not-happen", false, "it did not happen")
	c.Flags().StringVar(&note, "note", "", "how you know, kept in the ledger: `TEXT`")
	return c
}

func (a *app) resolveOperation(ctx context.Context, r wire.OperationResolve) error {
	if err := a.manageProven(ctx, wire.MethodOperationSettle, r, nil); err != nil {
		return err
	}
	return a.result(map[string]any{"operation_id": r.OperationID, "happened": r.Happened}, "Recorded. An equal action may run again.")
}
