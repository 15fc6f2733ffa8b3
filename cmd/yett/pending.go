package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

func newPending(a *app) *cobra.Command {
	following := false
	c := &cobra.Command{
		Use:   "pending [ID]",
		Short: "Show the cards that wait for a decision",
		Long: "Shows the cards that wait, in turn between the processes that ask: the oldest of each\n" +
			"first, so that one process pushes no card of another away. Every process of a program\n" +
			"has its turn. With an ID that card is shown in full, however many wait; with --json every\n" +
			"card is. Cards say what is to be done and with which digest it is approved, and whoever\n" +
			"runs this command could read them, an agent too: so they are shown for your proof only.\n" +
			"Without it there are ids, times and capability names.\n\n" +
			"With --follow it goes on: each card is printed when it comes, and it is said which wait\n" +
			"no more. A proof shows cards in full for a quarter of an hour, then in a line each.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			conn, err := a.dial(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			if following && len(args) == 1 {
				return usageError{errors.New("--follow shows all that waits, not one card")}
			}
			if following {
				if err := a.openReading(c.Context(), conn); err != nil {
					return err
				}
				return a.follow(c.Context(), conn)
			}
			if waits, err := a.anythingWaits(c.Context(), conn); err != nil {
				return err
			} else if waits || len(args) == 1 || a.passFD >= 0 {
				if err := a.openReading(c.Context(), conn); err != nil {
					return err
				}
			}
			if len(args) == 1 {
				return a.pendingCard(c.Context(), conn, args[0])
			}
			return a.pendingCards(c.Context(), conn)
		},
	}
	c.Flags().BoolVar(&a.touchID, "touch-id", false, "prove by the finger in place of the passphrase; on a Mac, see yett touch-id")
	c.Flags().BoolVar(&following, "follow", false, "go on showing what comes, until Ctrl-C")
	return c
}

// anythingWaits asks for the number of cards, which the broker tells without a
// proof: where none waits no passphrase is asked for.
func (a *app) anythingWaits(ctx context.Context, conn *client.Conn) (bool, error) {
	var st wire.Status
	err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st)
	a.locked = st.State == "locked"
	return st.Pending > 0, err
}

// pendingCard shows one card. Its digest is of what is shown.
func (a *app) pendingCard(ctx context.Context, conn *client.Conn, id string) error {
	p, there, err := cardOf(ctx, conn, id)
	switch {
	case err != nil:
		return err
	case !there:
		return noSuchCard()
	case a.json:
		return printJSON(a.stdout, p)
	}
	return a.printPending([]wire.Approval{p})
}

// pendingCards lists all cards. What the broker's list had no room for is asked
// for card by card; a card that is gone by then waits no more.
func (a *app) pendingCards(ctx context.Context, conn *client.Conn) error {
	l, err := listCards(ctx, conn)
	if err != nil {
		return err
	}
	if len(l.Items) == 0 {
		a.noteLocked()
	}
	proven := len(l.Items) > 0 && l.Items[0].Card != nil
	if a.json {
		out := jsonArray{out: a.stdout}
		err := eachCard(ctx, conn, l, func(int) bool { return proven }, func(p wire.Approval) error { return out.add(p) })
		if err != nil {
			return err
		}
		return out.end()
	}
	var items []wire.Approval
	err = eachCard(ctx, conn, l, func(n int) bool { return proven && n < cardsShown }, func(p wire.Approval) error {
		if len(items) >= cardsShown {
			p.Card = nil // a line is shown of it
		}
		items = append(items, p)
		return nil
	})
	if err != nil {
		return err
	}
	return a.printPending(items)
}

// pageOverlap is how many cards may be decided between two pages of a list
// without another being left out.
const pageOverlap = 1000

// listCards names every card that waits. One page does unless there are tens of
// thousands.
func listCards(ctx context.Context, conn *client.Conn) (all wire.List[wire.Approval], err error) {
	seen := map[string]bool{}
	for offset := 0; ; {
		var l wire.List[wire.Approval]
		if err := call(ctx, conn, wire.MethodApprovalList, wire.ApprovalList{Offset: offset}, nil, &l); err != nil {
			return all, err
		}
		page := l.Rest
		if offset == 0 {
			all.Items = l.Items
			for _, p := range l.Items {
				seen[p.ApprovalID] = true
			}
		} else {
			for _, p := range slices.Backward(l.Items) {
				page = slices.Insert(page, 0, p.ApprovalID)
			}
		}
		for _, id := range page {
			if !seen[id] {
				seen[id] = true
				all.Rest = append(all.Rest, id)
			}
		}
		if l.More == 0 {
			return all, nil
		}
		offset += max(len(l.Items)+len(l.Rest)-pageOverlap, 1)
	}
}

// eachCard hands on every card of a list in its order, with the document where
// whole says so.
func eachCard(ctx context.Context, conn *client.Conn, l wire.List[wire.Approval], whole func(n int) bool, do func(wire.Approval) error) error {
	for n, p := range l.Items {
		there, err := true, error(nil)
		if p.Card == nil && whole(n) {
			p, there, err = cardOf(ctx, conn, p.ApprovalID)
		}
		if err == nil && there {
			err = do(p)
		}
		if err != nil {
			return err
		}
	}
	for _, id := range l.Rest {
		p, there, err := cardOf(ctx, conn, id)
		if err == nil && there {
			err = do(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cardOf asks for one card, which comes whole after a proof however many wait.
func cardOf(ctx context.Context, conn *client.Conn, id string) (p wire.Approval, there bool, err error) {
	var l wire.List[wire.Approval]
	if err := call(ctx, conn, wire.MethodApprovalList, wire.ApprovalList{ApprovalID: id}, nil, &l); err != nil {
		return p, false, err
	}
	if len(l.Items) != 1 || l.Items[0].ApprovalID != id {
		return p, false, nil
	}
	p = l.Items[0]
	if p.Card == nil {
		return p, true, nil
	}
	if p.Card, err = approval.Received(p.Card, p.CardDigest); err != nil {
		return p, false, wire.Errorf(wire.CodeInternal, "The card %s and its digest do not match.", approval.Escape(id, 60))
	}
	return p, true, nil
}

func noSuchCard() error {
	return wire.Errorf(wire.CodeBadRequest, "No such card waits: it was decided, withdrawn, or never there.").
		Then("List what waits: yett pending.")
}

// What a screen has room for: whole cards, and lines about others.
const (
	cardsShown = 5
	linesShown = 30
)

// printPending prints the first cards in full and the others in a line each.
// The list comes in turn between callers, so the flood of one of them stands
// behind the first cards of all.
func (a *app) printPending(items []wire.Approval) error {
	out := a.stdout
	if len(items) == 0 {
		fmt.Fprintln(out, "Nothing waits.")
	}
	full := 0
	for full < len(items) && full < cardsShown && items[full].Card != nil {
		p := items[full]
		if _, err := screen.Card(out, p); err != nil {
			return err
		}
		a.printChoices(p)
		full++
	}
	rest := items[full:]
	if full > 0 && len(rest) > 0 {
		a.advise("%d more wait; yett pending ID shows one of them in full:", len(rest))
	}
	for i, p := range rest {
		if i == linesShown {
			a.advise("… and %d more; every one of them: yett pending --json", len(rest)-i)
			break
		}
		line := fmt.Sprintf("%s  %s  until %s", p.ApprovalID, strings.Join(p.Capabilities, ", "), p.ExpiresAt.Local().Format(time.TimeOnly))
		fmt.Fprintln(out, approval.Printable(line))
	}
	a.printFloods(rest)
	return nil
}

// floodOf is how many cards of one session are more than a person reads.
const floodOf = 10

// printFloods says how to be rid of many cards of one session at once.
func (a *app) printFloods(rest []wire.Approval) {
	cards := map[string]int{}
	for _, p := range rest {
		if p.SessionID != "" {
			cards[p.SessionID]++
		}
	}
	var floods []string
	for id, n := range cards {
		if n >= floodOf {
			floods = append(floods, id)
		}
	}
	slices.SortFunc(floods, func(a, b string) int { return cmp.Or(cards[b]-cards[a], cmp.Compare(a, b)) })
	for _, id := range floods[:min(len(floods), cardsShown)] {
		a.advise("Session %s has %d of these; to end it and take them all back: yett revoke %s", id, cards[id], id)
	}
}

// printChoices says how a card can be decided.
func (a *app) printChoices(p wire.Approval) {
	approve := "next: yett approve " + p.ApprovalID
	if forTime(p) {
		a.advise("\n%s             one action for each capability", approve)
		a.advise("      yett approve %s --for 30m   as many as you like for 30 minutes; at most 8h", p.ApprovalID)
		a.advise("      yett deny %s                no\n", p.ApprovalID)
		return
	}
	a.advise("\n%s   yes, once", approve)
	a.advise("      yett deny %s      no\n", p.ApprovalID)
}

// forTime reports whether a card can be approved for a time: not one for a single
// action, nor for a session whose actions each get a card of their own.
func forTime(p wire.Approval) bool {
	var c struct {
		Request  *struct{} `json:"request"`
		Granting struct {
			Unit action.Unit `json:"unit"`
		} `json:"granting"`
	}
	return json.Unmarshal(p.Card, &c) != nil || c.Request == nil && c.Granting.Unit != action.UnitOperation
}
