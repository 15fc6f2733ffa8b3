package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

const logKeyUsage = "the log's verifier key, or a file that has it: `KEY`; the one beside the ledger by default"

func newAuditCheckpoint(a *app) *cobra.Command {
	key := false
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Print the signed head of the ledger; needs no broker",
		Long: "Prints the newest signed head: a C2SP checkpoint in a signed note. Keep one elsewhere, and\n" +
			"the log's verifier key (--key) with it: yett audit consistency tells later whether the\n" +
			"ledger goes on from it.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.auditCheckpoint(key) },
	}
	c.Flags().BoolVar(&key, "key", false, "print the log's verifier key instead")
	return c
}

func (a *app) auditCheckpoint(key bool) error {
	loc, err := a.location()
	if err != nil {
		return err
	}
	verifier, err := a.logKey("")
	if err != nil {
		return err
	}
	if key {
		return a.result(map[string]string{"key": verifier}, "%s", verifier)
	}
	head, err := ledger.ReadHead(loc.Home)
	if err != nil {
		return noHead(err)
	}
	c, err := ledger.OpenCheckpoint(head, verifier)
	if err != nil {
		return auditFailed(err)
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"checkpoint": string(head), "entries": c.Size, "root_hash": c.Root.String(), "key": verifier})
	}
	_, err = a.stdout.Write(head)
	return err
}

// logKey is the verifier key that was given, or the one beside the ledger.
func (a *app) logKey(given string) (string, error) {
	path := given
	switch {
	case given == "":
		loc, err := a.location()
		if err != nil {
			return "", err
		}
		path = filepath.Join(loc.Home, ledger.KeyFile)
	case strings.Contains(given, "+"):
		return given, nil
	}
	text, err := os.ReadFile(path)
	if err != nil && given == "" {
		return "", noHead(err)
	}
	if err != nil {
		return "", wire.Errorf(wire.CodeBadRequest, "The log's key cannot be read: %s.", printable(err.Error()))
	}
	return strings.TrimSpace(string(text)), nil
}

func noHead(err error) error {
	why := ": " + printable(err.Error())
	if errors.Is(err, fs.ErrNotExist) {
		why = " yet"
	}
	return wire.Errorf(wire.CodeBadRequest, "There is no signed head here%s.", why).
		Then("The broker signs one when it is unlocked: yett up.")
}

// auditFailed says what a check found. It exits 1, as verify does.
func auditFailed(err error) error {
	next := "See what else was changed: yett audit verify --rows."
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noHead(err)
	case errors.Is(err, ledger.ErrNoRow):
		next = "yett activity shows the numbers of rows; the newest is under a head within a second."
	}
	return wire.Errorf(wire.CodeBadRequest, "%s", sentence(printable(err.Error()))).Then(next)
}

func newAuditProve(a *app) *cobra.Command {
	out := ""
	c := &cobra.Command{
		Use:   "prove N",
		Short: "Prove that row N lies under the signed head; needs no broker",
		Long: "Writes a proof that row N, sealed as it is, lies under the newest signed head. Whoever has\n" +
			"the log's verifier key checks it with yett audit verify-proof, without broker or vault.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.auditProve(c.Context(), args[0], out) },
	}
	c.Flags().StringVar(&out, "out", "", "write to a new `FILE`")
	return c
}

func (a *app) auditProve(ctx context.Context, row, out string) error {
	n, err := strconv.ParseInt(row, 10, 64)
	if err != nil {
		return usageError{fmt.Errorf("%q is no number of a row", row)}
	}
	loc, err := a.location()
	if err != nil {
		return err
	}
	p, err := ledger.Prove(ctx, loc.Home, n)
	if err != nil {
		return auditFailed(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := a.writeOutput(out, "proof", text); err != nil {
		return err
	}
	if out != "" {
		a.note("%s: row %d, %d hashes", printable(out), p.Row, len(p.Hashes))
	}
	return nil
}

// maxProof bounds a proof's file: a row has at most 8 MiB.
const maxProof = 16 << 20

func newAuditVerifyProof(a *app) *cobra.Command {
	key := ""
	c := &cobra.Command{
		Use:   "verify-proof FILE",
		Short: "Check a proof with the log's key alone",
		Long:  "Checks a proof of yett audit prove. It needs no broker, no vault and no ledger: only the\nlog's verifier key, which yett audit checkpoint --key prints.",
		Args:  cobra.ExactArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return a.auditVerifyProof(args[0], key) },
	}
	c.Flags().StringVar(&key, "key", "", logKeyUsage)
	return c
}

func (a *app) auditVerifyProof(path, key string) error {
	verifier, err := a.logKey(key)
	if err != nil {
		return err
	}
	text, err := readInput(path, maxProof)
	if err != nil {
		return err
	}
	p, c, err := ledger.ParseProof(text, verifier)
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "The proof does not hold: %s.", printable(err.Error())).
			Then("Check that it is the key of this log, and get the proof again from whoever made it.")
	}
	return a.result(map[string]any{"ok": true, "row": p.Row, "entries": c.Size, "root_hash": c.Root.String(), "origin": c.Origin}, "row %d lies under the head of %s over %d rows: ok", p.Row, c.Origin, c.Size)
}

func newAuditConsistency(a *app) *cobra.Command {
	key := ""
	c := &cobra.Command{
		Use:   "consistency OLD-CHECKPOINT",
		Short: "Check that the ledger goes on from an older head; needs no broker",
		Long: "Checks that the rows under a head that you kept are the first ones of those under the\n" +
			"newest head. Then nothing of them was changed, cut off or replaced since.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.auditConsistency(c.Context(), args[0], key) },
	}
	c.Flags().StringVar(&key, "key", "", logKeyUsage)
	return c
}

func (a *app) auditConsistency(ctx context.Context, path, key string) error {
	loc, err := a.location()
	if err != nil {
		return err
	}
	verifier, err := a.logKey(key)
	if err != nil {
		return err
	}
	old, err := readInput(path, 4096)
	if err != nil {
		return err
	}
	from, to, err := ledger.Consistent(ctx, loc.Home, old, verifier)
	if err != nil {
		return auditFailed(err)
	}
	return a.result(map[string]any{"ok": true, "from_entries": from.Size, "entries": to.Size, "root_hash": to.Root.String()}, "the first %d of %d rows are those of the older head: ok", from.Size, to.Size)
}
