package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

func newPending(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "pending",
		Short: "Show the cards that wait for a decision",
		Long: "Shows the cards that wait: the oldest of each program first, so that no program can push\n" +
			"another's card away. Without your proof only ids, times and capability names are shown;\n" +
			"with it the cards, and the digests by which they are approved.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var l wire.List[wire.Approval]
			if err := a.read(c.Context(), wire.MethodApprovalList, wire.ApprovalList{}, &l); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, l.Items)
			}
			return printPending(a.stdout, l.Items)
		},
	}
}

// What a screen has room for: whole cards, and lines about others.
const (
	cardsShown = 5
	linesShown = 30
)

// printPending prints the first cards in full and the others in a line each.
// The list comes in turn between callers, so the flood of one of them stands
// behind the first cards of all.
func printPending(out io.Writer, items []wire.Approval) error {
	if len(items) == 0 {
		fmt.Fprintln(out, "Nothing waits.")
	}
	full := 0
	for full < len(items) && full < cardsShown && items[full].Card != nil {
		p := items[full]
		if _, err := printCard(out, p); err != nil {
			return err
		}
		fmt.Fprintf(out, "\nnext: yett approve %s%s, or yett deny %s\n\n", p.ApprovalID, forHint(p), p.ApprovalID)
		full++
	}
	rest := items[full:]
	if full > 0 && len(rest) > 0 {
		fmt.Fprintf(out, "%d more wait; yett approve ID shows one of them:\n", len(rest))
	}
	for i, p := range rest {
		if i == linesShown {
			fmt.Fprintf(out, "… and %d more: yett pending --json\n", len(rest)-i)
			break
		}
		line := fmt.Sprintf("%s  %s  until %s", p.ApprovalID, strings.Join(p.Capabilities, ", "), p.ExpiresAt.Local().Format(time.TimeOnly))
		fmt.Fprintln(out, approval.Printable(line))
	}
	printFloods(out, rest)
	return nil
}

// floodOf is how many cards of one session are more than a person reads.
const floodOf = 10

// printFloods says how to be rid of many cards of one session at once.
func printFloods(out io.Writer, rest []wire.Approval) {
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
		fmt.Fprintf(out, "Session %s has %d of these; to end it and take them all back: yett revoke %s\n", id, cards[id], id)
	}
}

// forHint offers a length where one makes sense: not for a single action, nor
// for a session whose actions each get a card of their own.
func forHint(p wire.Approval) string {
	var c struct {
		Request  *struct{} `json:"request"`
		Granting struct {
			Unit action.Unit `json:"unit"`
		} `json:"granting"`
	}
	if json.Unmarshal(p.Card, &c) == nil && (c.Request != nil || c.Granting.Unit == action.UnitOperation) {
		return ""
	}
	return " [--for 30m]"
}
