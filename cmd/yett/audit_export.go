package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

func newAuditExport(a *app) *cobra.Command {
	var r wire.Export
	c := &cobra.Command{
		Use:   "export",
		Short: "Print the ledger for other programs, with your proof",
		Long: "Prints all rows, oldest first, as they are read. By default what an agent or a program said\n" +
			"of itself and what it asked for is left out; --full has everything. That the ledger was\n" +
			"exported is a row.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if r.Format != "ndjson" && r.Format != "csv" {
				return usageError{errors.New("--format is ndjson or csv")}
			}
			return a.auditExport(c.Context(), r)
		},
	}
	c.Flags().StringVar(&r.Format, "format", "ndjson", "`ndjson` or csv")
	c.Flags().BoolVar(&r.Full, "full", false, "with claims, requests and grants")
	return c
}

func (a *app) auditExport(ctx context.Context, r wire.Export) error {
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.prove(ctx, conn, wire.MethodLedgerExport, r, nil); err != nil {
		return err
	}
	table := csv.NewWriter(a.stdout)
	if r.Format == "csv" {
		table.Write(exportHead(r.Full))
	}
	begun := time.Now()
	_, err = forward(listerOf(ctx, conn), 1, 0, func(raw json.RawMessage, row ledger.Row) error {
		if time.Since(begun) > 10*time.Minute { // reading is open for a quarter of an hour
			if err := a.prove(ctx, conn, wire.MethodActivityRead, wire.Empty{}, nil); err != nil {
				return err
			}
			begun = time.Now()
		}
		switch {
		case r.Format == "csv":
			return table.Write(exportLine(row, r.Full))
		case r.Full:
			return printJSON(a.stdout, raw)
		}
		return printJSON(a.stdout, redact(row))
	})
	table.Flush()
	return errors.Join(err, table.Error())
}

// redacted is a row without what an agent or a program wrote into it.
type redacted struct {
	N           int64     `json:"n"`
	At          time.Time `json:"at"`
	Kind        string    `json:"kind"`
	SessionID   string    `json:"session_id"`
	OperationID string    `json:"operation_id"`
	Capability  string    `json:"capability,omitempty"`
	Method      string    `json:"method,omitempty"`
	State       string    `json:"state,omitempty"`
	Code        string    `json:"code,omitempty"`
	Status      int       `json:"status,omitempty"`
}

func redact(row ledger.Row) redacted {
	var r struct {
		Action *struct {
			Capability string
			HTTP       *struct{ Method string }
		}
	}
	var out struct {
		State, Code string
		Result      struct{ Status int }
	}
	json.Unmarshal(row.Request, &r) // a row of another shape has none of it
	json.Unmarshal(row.Outcome, &out)
	v := redacted{N: row.N, At: row.At, Kind: row.Kind, SessionID: row.SessionID, OperationID: row.OperationID,
		State: out.State, Code: out.Code, Status: out.Result.Status}
	if r.Action != nil {
		v.Capability = approval.Escape(r.Action.Capability, 200)
		if r.Action.HTTP != nil {
			v.Method = approval.Escape(r.Action.HTTP.Method, 20)
		}
	}
	return v
}

func exportHead(full bool) []string {
	head := []string{"n", "at", "kind", "session_id", "operation_id", "capability", "method", "state", "code", "status"}
	if full {
		head = append(head, "verified", "claimed", "granted", "request", "outcome")
	}
	return head
}

func exportLine(row ledger.Row, full bool) []string {
	v := redact(row)
	line := []string{strconv.FormatInt(v.N, 10), v.At.Format(time.RFC3339Nano), v.Kind, v.SessionID, v.OperationID, v.Capability, v.Method, v.State, v.Code, strconv.Itoa(v.Status)}
	if full {
		for _, part := range []json.RawMessage{row.Verified, row.Claimed, row.Granted, row.Request, row.Outcome} {
			line = append(line, string(asciiJSON(part)))
		}
	}
	for i, cell := range line { // no cell is a formula where a spreadsheet opens it
		if strings.IndexAny(cell, "=+-@\t\r") == 0 {
			line[i] = "'" + cell
		}
	}
	return line
}
