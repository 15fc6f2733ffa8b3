package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newAudit(a *app) *cobra.Command {
	rows := false
	verify := &cobra.Command{
		Use:   "verify",
		Short: "Check the ledger's files; needs no broker",
		Long: "Checks numbering, hashes and states of the ledger from its files, without any secret.\n" +
			"With --rows or --passphrase-fd every sealed row is opened too.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.auditVerify(c.Context(), rows) },
	}
	verify.Flags().BoolVar(&rows, "rows", false, "open every row too, with the passphrase")
	return parent("audit", "Check the ledger", verify, newAuditCheckpoint(a), newAuditProve(a), newAuditVerifyProof(a),
		newAuditConsistency(a), newAuditExport(a), newAuditAcknowledge(a))
}

func (a *app) auditVerify(ctx context.Context, rows bool) error {
	loc, err := a.location()
	if err != nil {
		return err
	}
	var again approvals
	check := func() (ledger.Report, error) { return ledger.Verify(ctx, loc.Home, nil, a.progress("rows")) }
	if rows || a.passFD >= 0 {
		opener, head, err := a.rowOpener(ctx, loc)
		if err != nil {
			return err
		}
		defer head.Key.Wipe()
		check = func() (ledger.Report, error) {
			return ledger.VerifyWithVault(ctx, loc.Home, opener, head, a.progress("rows"), again.look)
		}
	}
	report, err := check()
	if errors.Is(err, ledger.ErrNoLedger) {
		return wire.Errorf(wire.CodeBadRequest, "There is no ledger in %s.", loc.Home).
			Then("Start the broker once: yett up.")
	}
	if err != nil {
		return fmt.Errorf("the ledger cannot be read: %w", err)
	}
	if v, err := vault.Load(loc.Home); err == nil && v.Generation() < report.Vault {
		report.Problem("the vault is of generation %d, and the ledger tells of generation %d: an older vault was put in its place", v.Generation(), report.Vault)
	}
	if a.json {
		if report.Problems == nil {
			report.Problems = []string{}
		}
		printJSON(a.stdout, report)
	} else {
		for _, p := range report.Problems {
			fmt.Fprintf(a.stdout, "problem: %s\n", p)
		}
		if again.checked > 0 {
			fmt.Fprintf(a.stdout, "%s by signature checked again\n", screen.HowMany(again.checked, "act"))
		}
		fmt.Fprintf(a.stdout, "%s, root %s: %s\n", screen.HowMany(int(report.Entries), "entry"), report.RootHash, map[bool]string{true: "ok", false: "NOT OK"}[report.OK])
	}
	if !report.OK {
		return reported{exitFailed}
	}
	return nil
}

// progress tells on a terminal how far a long reading is; elsewhere it is nil.
func (a *app) progress(what string) func(done, total int64) {
	if a.json || !term.IsTerminal(int(a.stderr.Fd())) {
		return nil
	}
	var last time.Time
	return func(done, total int64) {
		if done < total && time.Since(last) < 200*time.Millisecond {
			return
		}
		if last.IsZero() && done >= total { // it was no long one
			return
		}
		last = time.Now()
		fmt.Fprintf(a.stderr, "\r%d of %d %s", done, total, what)
		if done >= total {
			fmt.Fprintln(a.stderr)
		}
	}
}

// rowOpener opens the vault's file for this command alone, to read rows and to
// check the signatures of heads.
func (a *app) rowOpener(ctx context.Context, loc endpoint.Location) (o *ledger.Opener, head ledger.HeadFor, err error) {
	v, err := vault.Load(loc.Home)
	if err != nil {
		return nil, head, vaultUnusable(loc, err)
	}
	phrase, err := a.secretPhrase(ctx, "Yett passphrase: ")
	if err != nil {
		return nil, head, err
	}
	slot, keys, err := a.derive(phrase, challengeSlots(v.Slots()))
	if err != nil {
		return nil, head, err
	}
	if err := v.Unlock(slot, keys.Unlock); err != nil {
		if errors.Is(err, vault.ErrWrongKey) {
			return nil, head, wire.NewError(wire.CodeProofInvalid)
		}
		return nil, head, vaultUnusable(loc, err)
	}
	defer v.Lock()
	private, err := v.AuditPrivateKey()
	if err != nil {
		return nil, head, err
	}
	defer clear(private)
	seed, err := v.Subkey(ledger.HeadKeyPurpose)
	if err != nil {
		return nil, head, err
	}
	defer clear(seed)
	if head.Vault, err = v.LedgerHead(); err != nil {
		return nil, head, err
	}
	if head.Key, err = ledger.NewLogKey(seed); err != nil {
		return nil, head, err
	}
	o, err = ledger.NewOpener(private)
	return o, head, err
}
