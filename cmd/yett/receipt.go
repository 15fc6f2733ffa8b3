package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

func newReceipt(a *app) *cobra.Command {
	out := ""
	c := &cobra.Command{
		Use:   "receipt N",
		Short: "Write a receipt of an approval by passkey or Touch ID, which anyone can check",
		Long: "Writes a JSON document about the decision in row N of the ledger: the card, the choice and\n" +
			"the signature over both, by a passkey or a Touch ID key. Whoever knows the public key checks\n" +
			"it with yett receipt verify, or with any verifier of WebAuthn (of Ed25519 for Touch ID). The\n" +
			"card tells what was asked for: give a receipt to nobody who may not read that. Rows are\n" +
			"listed by yett activity.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.receipt(c.Context(), args[0], out) },
	}
	c.Flags().StringVar(&out, "out", "", "write to a new `FILE`")
	c.AddCommand(newReceiptVerify(a))
	return c
}

func (a *app) receipt(ctx context.Context, row, out string) error {
	n, err := strconv.ParseInt(row, 10, 64)
	if err != nil || n < 1 {
		return usageError{fmt.Errorf("%q is no number of a row", row)}
	}
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := a.readReceipt(ctx, conn, n)
	if err != nil {
		return err
	}
	if r.LogKey, err = a.logKey(""); err != nil {
		return err
	}
	if r.Log, err = a.proofOf(ctx, n); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the receipt: %w", err)
	}
	text = append(asciiJSON(text), '\n')
	if err := a.writeOutput(out, "receipt", text); err != nil {
		return err
	}
	if out != "" {
		a.note("%s: %s of card %s by %s %q", printable(out), r.Choice, r.ApprovalID, keyWord(r.By), printable(r.Name))
	}
	return nil
}

// readReceipt reads the decision in row n, and checks it once more.
func (a *app) readReceipt(ctx context.Context, conn *client.Conn, n int64) (r approval.Receipt, err error) {
	if err := a.prove(ctx, conn, wire.MethodActivityRead, wire.Empty{}, nil); err != nil {
		return r, err
	}
	var l wire.List[json.RawMessage]
	if err := call(ctx, conn, wire.MethodActivityList, wire.ActivityList{From: n, Limit: 1}, nil, &l); err != nil {
		return r, err
	}
	var row ledger.Row
	if len(l.Items) > 0 {
		err = json.Unmarshal(l.Items[0], &row)
	}
	if err != nil {
		return r, fmt.Errorf("reading row %d: %w", n, err)
	}
	if row.N != n || row.Kind != "decision" {
		return r, wire.Errorf(wire.CodeBadRequest, "Row %d is no decision.", n).
			Then("Find the row of the decision: yett activity.")
	}
	d, err := approval.ReadDecided(row.Verified, row.Granted, row.Request, row.Outcome)
	if err == nil {
		r, err = approval.NewReceipt(d, row.At)
	}
	switch {
	case errors.Is(err, approval.ErrNotSigned):
		return r, wire.Errorf(wire.CodeBadRequest, "Row %d was approved without a signature, so nobody else could check a receipt of it.", n).
			Then("Approve with a passkey what others are to check: yett console.")
	case err != nil:
		return r, auditFailed(err)
	}
	r.Row = n
	return r, nil
}

// headPatience is how long a receipt waits for the head over its row; the broker
// signs one every second.
const headPatience = 10 * time.Second

func (a *app) proofOf(ctx context.Context, n int64) (json.RawMessage, error) {
	loc, err := a.location()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(headPatience)
	for {
		p, err := ledger.Prove(ctx, loc.Home, n)
		if err == nil {
			return json.Marshal(p)
		}
		if !errors.Is(err, ledger.ErrNoRow) || time.Now().After(deadline) {
			return nil, auditFailed(err)
		}
		select {
		case <-ctx.Done():
			return nil, errInterrupted
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func newReceiptVerify(a *app) *cobra.Command {
	var passkey, key string
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a receipt; needs nothing but the public key",
		Long: "Checks that the key approved exactly this card. It needs no broker, no vault and no\n" +
			"ledger. The public key is in the receipt; whose it is you have to know yourself: compare\n" +
			"its SHA-256 with --passkey, as yett passkey list printed it for the person who approved.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range []string{"passkey", "key"} { // an empty one is a mistake of whoever calls, and no leave to skip the check
				if f := c.Flags().Lookup(name); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
					return usageError{fmt.Errorf("--%s is empty", name)}
				}
			}
			return a.receiptVerify(args[0], passkey, key)
		},
	}
	c.Flags().StringVar(&passkey, "passkey", "", "the SHA-256 of the public key that it has to be, in `HEX`")
	c.Flags().StringVar(&key, "key", "", "the log's verifier key, or a file that has it: `KEY`; the one in the receipt by default")
	return c
}

func (a *app) receiptVerify(path, passkey, key string) error {
	text, err := readInput(path, maxProof)
	if err != nil {
		return err
	}
	r, err := approval.ParseReceipt(text)
	if err == nil && passkey != "" && passkey != r.Fingerprint {
		err = fmt.Errorf("%w: its key is %s", approval.ErrReceipt, r.Fingerprint)
	}
	var c ledger.Checkpoint
	if err == nil {
		c, err = a.checkLogProof(r, key)
	}
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "%s", sentence(printable(err.Error()))).
			Then("Do not rely on it; get the receipt again from whoever made it.")
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"ok": true, "approval_id": r.ApprovalID, "card_digest": r.CardDigest, "choice": r.Choice,
			"until": r.Until, "public_key_sha256": r.Fingerprint, "public_key_known": passkey != "", "row": r.Row, "entries": c.Size, "origin": c.Origin})
	}
	return a.printReceipt(r, c, passkey != "")
}

// keyWord is what a kind of key is called.
func keyWord(by string) string {
	if by == approval.ByTouchID {
		return "Touch ID key"
	}
	return "passkey"
}

func (a *app) checkLogProof(r approval.Receipt, key string) (ledger.Checkpoint, error) {
	verifier := r.LogKey
	if key != "" {
		var err error
		if verifier, err = a.logKey(key); err != nil {
			return ledger.Checkpoint{}, err
		}
	}
	p, c, err := ledger.ParseProof(r.Log, verifier)
	if err != nil {
		return c, fmt.Errorf("%w: the log's proof: %w", approval.ErrReceipt, err)
	}
	if p.Row != r.Row {
		return c, fmt.Errorf("%w: the log's proof is about row %d, not %d", approval.ErrReceipt, p.Row, r.Row)
	}
	return c, nil
}

func (a *app) printReceipt(r approval.Receipt, c ledger.Checkpoint, known bool) error {
	var card approval.Card
	if err := json.Unmarshal([]byte(r.Card), &card); err != nil {
		return fmt.Errorf("reading the card: %w", err)
	}
	w := io.Writer(a.stdout)
	fmt.Fprintf(w, "ok: %s %s approved this card\n", keyWord(r.By), r.Fingerprint)
	if !known {
		fmt.Fprintln(w, "    whose key that is, the receipt does not show: compare with --passkey")
	}
	end := "once"
	if r.Until != nil {
		end = "until " + r.Until.Format(time.RFC3339)
	}
	fmt.Fprintf(w, "card      %s (%s)\nchoice    %s\n", printable(card.ApprovalID), printable(card.Tag), end)
	for _, g := range card.Granting.Capabilities {
		fmt.Fprintf(w, "gives     %s on %s\n", printable(g.Name), printable(g.Target))
	}
	if q := card.Request; q != nil && q.Command != "" {
		fmt.Fprintf(w, "action    %s\n", printable(q.Command))
	} else if q != nil {
		fmt.Fprintf(w, "action    %s %s\n", printable(q.Method), printable(q.Path))
	}
	fmt.Fprintf(w, "agent     %s\nrecorded  row %d of %s; by the broker's word at %s\n", printable(card.Verified.Agent.Kernel.ExePath), r.Row, printable(c.Origin), r.DecidedAt.Format(time.RFC3339))
	return nil
}
