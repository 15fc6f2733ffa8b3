package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/doctor"
	"github.com/yett-broker/yett/internal/ledger"
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

// reviewed is what the page is made from. What needs the person's proof is nil
// without it.
type reviewed struct {
	at       time.Time
	status   wire.Status
	report   doctor.Report
	access   []wire.Access
	sessions wire.List[wire.Session]
	secrets  wire.List[wire.Secret]
	passkeys wire.List[wire.Passkey]
	policy   *access.Policy
	kinds    map[string]int // of the newest rows
	audit    *ledger.Report
	auditErr error
}

func (a *app) review(ctx context.Context, all bool) error {
	r, err := a.gather(ctx, !all)
	if err != nil {
		return err
	}
	if all {
		return a.printMatrix(newMatrix(r))
	}
	page := r.page()
	if a.json {
		return printJSON(a.stdout, map[string]any{"at": r.at, "proven": r.proven(), "topics": page})
	}
	writeReview(a.stdout, r.at, page)
	switch {
	case r.status.State == "locked":
		a.note("The broker is locked: yett unlock, and there is more to see.")
	case !r.proven():
		a.note("Counts only: your passphrase shows the rest (run it in a terminal, or give --passphrase-fd).")
	}
	return nil
}

// proven reports whether the person's proof opened reading.
func (r *reviewed) proven() bool { return r.policy != nil }

// gather asks the broker, over one connection, and looks at the system.
func (a *app) gather(ctx context.Context, rows bool) (*reviewed, error) {
	loc, err := a.location()
	if err != nil {
		return nil, err
	}
	conn, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := &reviewed{at: time.Now(), kinds: map[string]int{}}
	if err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &r.status); err != nil {
		return nil, err
	}
	if err := a.openReading(ctx, conn); err != nil {
		return nil, err
	}
	var shown wire.AccessListResult
	for method, into := range map[string]any{wire.MethodAccessShow: &shown, wire.MethodSessionList: &r.sessions, wire.MethodSecretList: &r.secrets, wire.MethodPasskeyList: &r.passkeys} {
		if err := call(ctx, conn, method, wire.Empty{}, nil, into); err != nil {
			return nil, err
		}
	}
	r.access = shown.Capabilities
	if err := a.gatherPolicy(ctx, conn, r); err != nil {
		return nil, err
	}
	if rows {
		if err := r.gatherRows(ctx, listerOf(ctx, conn), loc.Home); err != nil {
			return nil, err
		}
	}
	r.report = a.examine(ctx, loc)
	return r, nil
}

// gatherPolicy reads the access file that is applied, which names the
// credential of each capability.
func (a *app) gatherPolicy(ctx context.Context, conn *client.Conn, r *reviewed) error {
	if !a.canProve() || r.status.State == "locked" {
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
	r.policy = policy
	return nil
}

// verifyTime bounds the check of the whole ledger; a page is no audit.
const verifyTime = 30 * time.Second

func (r *reviewed) gatherRows(ctx context.Context, list lister, home string) error {
	check, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	report, err := ledger.Verify(check, home, nil, nil)
	if err != nil {
		r.auditErr = err
		return nil
	}
	r.audit = &report
	return r.countKinds(list, report.Entries)
}

// newestRows is how many rows the page counts the kinds of.
const newestRows = 5000

func (r *reviewed) countKinds(list lister, entries int64) error {
	_, err := forward(list, max(1, entries-newestRows+1), 0, func(_ json.RawMessage, row ledger.Row) error {
		r.kinds[row.Kind]++
		return nil
	})
	return err
}

// writeReview writes the page in Markdown.
func writeReview(w io.Writer, at time.Time, page []topic) {
	fmt.Fprintf(w, "# Yett, as it runs at %s\n", at.UTC().Format(time.RFC3339))
	for _, t := range page {
		fmt.Fprintf(w, "\n## %s\n\n", t.Topic)
		for _, f := range t.Facts {
			fmt.Fprintf(w, "- %s (%s)\n", f.Fact, f.From)
		}
	}
}

// printMatrix prints the matrix, unless a cell is missing: a table that leaves
// out what somebody can do is worse than none.
func (a *app) printMatrix(m matrix) error {
	if gaps := m.missing(); len(gaps) > 0 {
		return errors.New("the matrix is not complete: " + gaps[0])
	}
	if a.json {
		return printJSON(a.stdout, m)
	}
	m.write(a.stdout)
	if !m.Proven && !m.locked {
		a.note("Names of credentials and of others' sessions need your passphrase (run it in a terminal, or give --passphrase-fd).")
	}
	return nil
}
