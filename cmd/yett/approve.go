package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

type approveOptions struct {
	once   bool
	length time.Duration
	digest string
}

func newApprove(a *app) *cobra.Command {
	var o approveOptions
	c := &cobra.Command{
		Use:   "approve [ID]",
		Short: "Approve a card, once or for a time",
		Long: "Approves exactly the card that is shown. Without --for each capability covers one action.\n" +
			"On a terminal the card is shown and you are asked; without ID all cards that wait are, one\n" +
			"after the other, and the passphrase is asked for once. Elsewhere --digest names the card,\n" +
			"as read from yett pending --json with the same proof. With --touch-id each question is the\n" +
			"system's own prompt, which names the card by its two words.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.once && o.length != 0 {
				return usageError{errors.New("--once and --for exclude each other")}
			}
			if c.Flags().Changed("for") && (o.length <= 0 || o.length > approval.MaxGrant) {
				return usageError{fmt.Errorf("--for must be above 0 and at most %s", screen.Span(approval.MaxGrant))}
			}
			return a.approve(c.Context(), strings.Join(args, ""), o)
		},
	}
	c.Flags().BoolVar(&o.once, "once", false, "one action for each capability (the default)")
	c.Flags().DurationVar(&o.length, "for", 0, "grant for this `DURATION`, at most 8h")
	c.Flags().BoolVar(&a.touchID, "touch-id", false, "prove by the finger in place of the passphrase; on a Mac, see yett touch-id")
	c.Flags().StringVar(&o.digest, "digest", "", "the card's digest; required without a terminal")
	return c
}

// approve approves the card that the digest names; without one it shows the card,
// or all that wait, and asks.
func (a *app) approve(ctx context.Context, id string, o approveOptions) error {
	switch {
	case id == "" && (o.digest != "" || a.passFD >= 0 || !a.canProve()):
		return usageError{errors.New("ID is missing: only on a terminal are you asked about all cards")}
	case o.digest == "" && a.passFD >= 0:
		return usageError{errors.New("--passphrase-fd needs --digest: read it from yett pending --json with the same proof")}
	}
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if o.digest != "" {
		return a.give(ctx, conn, wire.Approval{ApprovalID: id, CardDigest: o.digest}, o)
	}
	if a.json || !a.canProve() {
		return wire.NewError(wire.CodeProofRequired).
			Then("Run it in a terminal without --json, or give --passphrase-fd and --digest.")
	}
	if err := a.openReading(ctx, conn); err != nil {
		return err
	}
	if id == "" {
		return a.approveEach(ctx, conn, o)
	}
	p, there, err := cardOf(ctx, conn, id)
	if err == nil && (!there || p.Card == nil) {
		err = noSuchCard()
	}
	if err != nil {
		return err
	}
	return a.askAndGive(ctx, conn, p, o)
}

// approveEach goes through what waits. A card that gets no yes, or no longer
// waits, does not end it.
func (a *app) approveEach(ctx context.Context, conn *client.Conn, o approveOptions) error {
	l, err := listCards(ctx, conn)
	if err != nil {
		return err
	}
	if len(l.Items) == 0 {
		fmt.Fprintln(a.stdout, "Nothing waits.")
	}
	return eachCard(ctx, conn, l, func(int) bool { return true }, func(p wire.Approval) error {
		err := a.askAndGive(ctx, conn, p, o)
		var fail *wire.Error
		if errors.As(err, &fail) && (fail.Code == wire.ReasonDenied || fail.Code == wire.CodeBadRequest) {
			a.printError(fail)
			return nil
		}
		return err
	})
}

// give approves a card by the person's proof, and says so.
func (a *app) give(ctx context.Context, conn *client.Conn, p wire.Approval, o approveOptions) error {
	request := wire.Approve{ApprovalID: p.ApprovalID, CardDigest: p.CardDigest, Choice: approval.ChoiceOnce}
	if o.length > 0 {
		request.Choice, request.Until = approval.ChoiceUntil, time.Now().Add(o.length).UTC()
	}
	if err := a.decide(ctx, conn, request); err != nil {
		return err
	}
	return a.result(map[string]any{"approval_id": p.ApprovalID, "choice": request.Choice, "until": endOf(request)}, "Approved.")
}

// decide approves a card by the person's proof over exactly this decision.
func (a *app) decide(ctx context.Context, conn *client.Conn, request wire.Approve) error {
	if a.touchID {
		return a.approveByTouch(ctx, conn, request)
	}
	return a.withKeys(ctx, conn, func(_ string, keys *vault.Keys, nonce string) error {
		mac := vault.Proof(keys.Approval, approval.DecisionMessage(request.CardDigest, request.Choice, request.Until, nonce))
		return call(ctx, conn, wire.MethodApprovalApprove, request, &wire.Proof{Nonce: nonce, MAC: mac}, nil)
	})
}

func endOf(r wire.Approve) *time.Time {
	if r.Until.IsZero() {
		return nil
	}
	return &r.Until
}

// askAndGive shows a card on the terminal and asks; what was shown is what its
// digest names.
func (a *app) askAndGive(ctx context.Context, conn *client.Conn, p wire.Approval, o approveOptions) error {
	c, err := screen.Card(a.stdout, p)
	if err != nil {
		return err
	}
	if c.Request != nil && o.length > 0 {
		return wire.Errorf(wire.CodeBadRequest, "This card is for one action, which is approved once and not for a time; the card still waits.").
			Then("Approve it: yett approve " + p.ApprovalID + ".")
	}
	if !a.touchID { // its own prompt is the question
		if err := askApproval(ctx, c, o); err != nil {
			return err
		}
	}
	return a.give(ctx, conn, p, o)
}

// askApproval asks for a whole word. The question says again what it is about:
// however long the card was, this stands on the screen.
func askApproval(ctx context.Context, c approval.Card, o approveOptions) error {
	how := "once"
	if o.length > 0 {
		how = "for " + screen.Span(o.length)
	}
	question := fmt.Sprintf("\n%s: %s\nApprove this %s? Type yes:", strings.ToUpper(c.Tag), screen.Summary(c), how)
	yes, err := askYes(ctx, screen.Wrap(question, screen.Width(os.Stderr))+" ")
	if err != nil {
		return err
	}
	if !yes {
		return wire.Errorf(wire.ReasonDenied, "Nothing was approved; the card still waits.").
			Then(fmt.Sprintf("yett approve %s shows it again, yett deny %s says no to it.", c.ApprovalID, c.ApprovalID))
	}
	return nil
}
