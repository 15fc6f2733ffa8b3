package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/review"
	"github.com/yett-broker/yett/internal/wire"
)

func newReview(a *app) *cobra.Command {
	all := false
	c := &cobra.Command{
		Use:   "review",
		Short: "Print one page about what is in force now, from the running system",
		Long: "Prints one page in Markdown: what an authorization covers, who was established to be\n" +
			"asking, when access began and ends, who owns the endpoint, what a crash and an update\n" +
			"do, and what is recorded. Each fact is read from the running system at that moment,\n" +
			"and says from where. With --matrix it prints which process can do what with which\n" +
			"credential, and what ends that. Without your proof it shows counts.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.review(c.Context(), all) },
	}
	c.Flags().BoolVar(&all, "matrix", false, "print processes, credentials, operations and what ends access")
	return c
}

func (a *app) review(ctx context.Context, all bool) error {
	r, err := a.gather(ctx, !all)
	if err != nil {
		return err
	}
	if all {
		return a.printMatrix(review.NewMatrix(r))
	}
	page := r.Page()
	if a.json {
		return printJSON(a.stdout, map[string]any{"at": r.At, "proven": r.Proven(), "topics": page})
	}
	review.Write(a.stdout, r.At, page)
	switch {
	case r.Status.State == "locked":
		a.note("The broker is locked: yett unlock, and there is more to see.")
	case !r.Proven():
		a.note("Counts only: your passphrase shows the rest (run it in a terminal, or give --passphrase-fd).")
	}
	return nil
}

// newFacts are the facts of now, with what this release says of itself.
func newFacts() *review.Facts {
	return &review.Facts{At: time.Now(), Kinds: map[string]int{}, Version: version, Profile: broker.Profile, Limits: broker.Limits, LockAfter: lockAfter}
}

// gather asks the broker, over one connection, and looks at the system.
func (a *app) gather(ctx context.Context, rows bool) (*review.Facts, error) {
	loc, err := a.location()
	if err != nil {
		return nil, err
	}
	conn, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := newFacts()
	if err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &r.Status); err != nil {
		return nil, err
	}
	if err := a.openReading(ctx, conn); err != nil {
		return nil, err
	}
	var shown wire.AccessListResult
	for method, into := range map[string]any{wire.MethodAccessShow: &shown, wire.MethodSessionList: &r.Sessions, wire.MethodSecretList: &r.Secrets, wire.MethodPasskeyList: &r.Passkeys} {
		if err := call(ctx, conn, method, wire.Empty{}, nil, into); err != nil {
			return nil, err
		}
	}
	r.Access = shown.Capabilities
	if err := a.gatherPolicy(ctx, conn, r); err != nil {
		return nil, err
	}
	if rows {
		if err := gatherRows(ctx, r, listerOf(ctx, conn), loc.Home); err != nil {
			return nil, err
		}
	}
	r.Report = a.examine(ctx, loc)
	return r, nil
}

// gatherPolicy reads the access file that is applied, which names the
// credential of each capability.
func (a *app) gatherPolicy(ctx context.Context, conn *client.Conn, r *review.Facts) error {
	if !a.canProve() || r.Status.State == "locked" {
		return nil
	}
	var text wire.AccessText
	if err := a.prove(ctx, conn, wire.MethodAccessText, wire.Empty{}, &text); err != nil {
		return err
	}
	policy, err := access.Parse([]byte(text.File))
	if err != nil {
		return fmt.Errorf("reading the applied access file: %w", err)
	}
	r.Policy = policy
	return nil
}

// verifyTime bounds the check of the whole ledger; a page is no audit.
const verifyTime = 30 * time.Second

func gatherRows(ctx context.Context, r *review.Facts, list lister, home string) error {
	check, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	report, err := ledger.Verify(check, home, nil, nil)
	if err != nil {
		r.AuditErr = err
		return nil
	}
	r.Audit = &report
	return countKinds(r, list, report.Entries)
}

func countKinds(r *review.Facts, list lister, entries int64) error {
	_, err := forward(list, max(1, entries-review.NewestRows+1), 0, func(_ json.RawMessage, row ledger.Row) error {
		r.Kinds[row.Kind]++
		return nil
	})
	return err
}

// printMatrix prints the matrix, unless a cell is missing: a table that leaves
// out what somebody can do is worse than none.
func (a *app) printMatrix(m review.Matrix) error {
	if gaps := m.Missing(); len(gaps) > 0 {
		return errors.New("the matrix is not complete: " + gaps[0])
	}
	if a.json {
		return printJSON(a.stdout, m)
	}
	m.Write(a.stdout)
	if !m.Proven && !m.Locked {
		a.note("Names of credentials and of others' sessions need your passphrase (run it in a terminal, or give --passphrase-fd).")
	}
	return nil
}
