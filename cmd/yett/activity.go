package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

func newActivity(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "activity",
		Short: "Print the ledger, oldest first",
		Long:  "Prints the rows of the ledger, oldest first; with --json one object a line. Without your\nproof only the number of rows is told.",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.activity(c.Context()) },
	}
}

func (a *app) activity(ctx context.Context) error {
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.openReading(ctx, conn); err != nil {
		return err
	}
	hidden := 0
	for from := int64(1); ; {
		var l wire.List[json.RawMessage]
		if err := call(ctx, conn, wire.MethodActivityList, wire.ActivityList{From: from, Limit: 500}, nil, &l); err != nil {
			return err
		}
		hidden = max(hidden, l.Hidden)
		if len(l.Items) == 0 {
			break
		}
		for _, raw := range l.Items {
			var row ledger.Row
			if err := json.Unmarshal(raw, &row); err != nil {
				return fmt.Errorf("reading a row: %w", err)
			}
			from = row.N + 1
			if a.json {
				printJSON(a.stdout, raw)
				continue
			}
			fmt.Fprintln(a.stdout, strings.TrimRight(fmt.Sprintf("%6d  %s  %-15s  %s", row.N,
				row.At.Local().Format("2006-01-02 15:04:05"), row.Kind, summary(row)), " "))
		}
	}
	a.hidden(hidden, "rows")
	return nil
}

// summary is what a row says in one line: what was asked, and what came of it.
func summary(row ledger.Row) string {
	var r struct {
		Action *struct {
			Capability string
			HTTP       *struct{ Method, Path string }
			SSH        *struct{ Command string }
		}
		Name, Difference string
		SessionID        string `json:"session_id"`
	}
	var out struct {
		Code, Detail, Choice string
		State                string
		Result               struct {
			Status int
			Exit   struct {
				Status *int
				Signal string
			}
			Error string
		}
		EndReason string `json:"end_reason"`
	}
	json.Unmarshal(row.Request, &r) // a row of another shape has no summary
	json.Unmarshal(row.Outcome, &out)
	words := []string{row.OperationID, r.Name}
	if a := r.Action; a != nil {
		words = append(words, a.Capability)
		if a.HTTP != nil {
			words = append(words, a.HTTP.Method, a.HTTP.Path)
		}
		if a.SSH != nil {
			words = append(words, a.SSH.Command)
		}
	}
	if res := out.Result; res.Status != 0 {
		words = append(words, "HTTP", strconv.Itoa(res.Status))
	} else if res.Exit.Status != nil {
		words = append(words, "exit", strconv.Itoa(*res.Exit.Status))
	} else {
		words = append(words, res.Exit.Signal, res.Error)
	}
	words = append(words, out.State, out.Choice, out.EndReason, out.Code, out.Detail)
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	return approval.Escape(strings.Join(words, " "), 200)
}
