package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
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
		Use:   "approve ID",
		Short: "Approve a card, once or for a time",
		Long: "Approves exactly the card that is shown. Without --for each capability covers one action.\n" +
			"On a terminal the card is shown and you are asked; otherwise --digest names the card,\n" +
			"as read from yett pending --json with the same proof.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.once && o.length != 0 {
				return usageError{fmt.Errorf("--once and --for exclude each other")}
			}
			if c.Flags().Changed("for") && (o.length <= 0 || o.length > approval.MaxGrant) {
				return usageError{fmt.Errorf("--for must be above 0 and at most %s", span(approval.MaxGrant))}
			}
			return a.approve(c.Context(), args[0], o)
		},
	}
	c.Flags().BoolVar(&o.once, "once", false, "one action for each capability (the default)")
	c.Flags().DurationVar(&o.length, "for", 0, "grant for this `DURATION`, at most 8h")
	c.Flags().StringVar(&o.digest, "digest", "", "the card's digest; required without a terminal")
	return c
}

func (a *app) approve(ctx context.Context, id string, o approveOptions) error {
	if o.digest == "" && a.passFD >= 0 {
		return usageError{fmt.Errorf("--passphrase-fd needs --digest: read it from yett pending --json with the same proof")}
	}
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var st wire.Status
	if err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st); err != nil {
		return err
	}
	if st.State == "locked" {
		return wire.NewError(wire.CodeLocked)
	}
	if o.digest == "" {
		if o.digest, err = a.showAndAsk(ctx, conn, id, o); err != nil {
			return err
		}
	}
	request := wire.Approve{ApprovalID: id, CardDigest: o.digest, Choice: approval.ChoiceOnce}
	if o.length > 0 {
		request.Choice, request.Until = approval.ChoiceUntil, time.Now().Add(o.length).UTC()
	}
	if err := a.decide(ctx, conn, request); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"approval_id": id, "choice": request.Choice, "until": endOf(request)})
	}
	fmt.Fprintln(a.stdout, "Approved.")
	return nil
}

// decide approves a card by the person's proof over exactly this decision.
func (a *app) decide(ctx context.Context, conn *client.Conn, request wire.Approve) error {
	_, keys, nonce, err := a.challenged(ctx, conn)
	if err != nil {
		return err
	}
	mac := vault.Proof(keys.Approval, approval.DecisionMessage(request.CardDigest, request.Choice, request.Until, nonce))
	return call(ctx, conn, wire.MethodApprovalApprove, request, &wire.Proof{Nonce: nonce, MAC: mac}, nil)
}

func endOf(r wire.Approve) *time.Time {
	if r.Until.IsZero() {
		return nil
	}
	return &r.Until
}

// showAndAsk shows the card on the terminal and asks; what was shown is what
// the returned digest names.
func (a *app) showAndAsk(ctx context.Context, conn *client.Conn, id string, o approveOptions) (string, error) {
	if !a.canProve() {
		return "", wire.NewError(wire.CodeProofRequired)
	}
	if err := a.openReading(ctx, conn); err != nil {
		return "", err
	}
	var l wire.List[wire.Approval]
	if err := call(ctx, conn, wire.MethodApprovalList, wire.ApprovalList{ApprovalID: id}, nil, &l); err != nil {
		return "", err
	}
	for _, p := range l.Items {
		if p.ApprovalID != id || p.Card == nil {
			continue
		}
		document, err := approval.Received(p.Card, p.CardDigest)
		if err != nil {
			return "", wire.Errorf(wire.CodeInternal, "The card and its digest do not match; nothing was approved.")
		}
		p.Card = document
		c, err := printCard(a.stdout, p)
		if err != nil {
			return "", err
		}
		if c.Request != nil && o.length > 0 {
			e := wire.Errorf(wire.CodeBadRequest, "This card is for one action, which is approved once and not for a time; the card still waits.")
			e.NextStep = "Approve it: yett approve " + id + "."
			return "", e
		}
		if err := askApproval(ctx, c, o); err != nil {
			return "", err
		}
		return p.CardDigest, nil
	}
	return "", noSuchCard()
}

// askApproval asks for a whole word. The question says again what it is about:
// however long the card was, this stands on the screen.
func askApproval(ctx context.Context, c approval.Card, o approveOptions) error {
	how := "once"
	if o.length > 0 {
		how = "for " + span(o.length)
	}
	question := fmt.Sprintf("\n%s: %s\nApprove this %s? Type yes:", strings.ToUpper(c.Tag), summaryOf(c), how)
	yes, err := askYes(ctx, wrap(question, widthOf(os.Stderr))+" ")
	if err != nil {
		return err
	}
	if !yes {
		e := wire.Errorf(wire.ReasonDenied, "Nothing was approved; the card still waits.")
		e.NextStep = fmt.Sprintf("yett approve %s shows it again, yett deny %s says no to it.", c.ApprovalID, c.ApprovalID)
		return e
	}
	return nil
}
