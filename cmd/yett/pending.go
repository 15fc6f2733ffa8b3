package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newPending(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "pending",
		Short: "Show the cards that wait for a decision",
		Long:  "Shows the cards that wait. Without your proof only ids, times and capability names are\nshown; with it the cards, and the digests by which they are approved.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var l wire.List[wire.Approval]
			if err := a.read(c.Context(), wire.MethodApprovalList, wire.Empty{}, &l); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, l.Items)
			}
			if len(l.Items) == 0 {
				fmt.Fprintln(a.stdout, "Nothing waits.")
			}
			for _, p := range l.Items {
				if p.Card == nil {
					fmt.Fprintf(a.stdout, "%s  %s  until %s\n", p.ApprovalID, strings.Join(p.Capabilities, ", "), p.ExpiresAt.Local().Format(time.TimeOnly))
					continue
				}
				if err := printCard(a.stdout, p); err != nil {
					return err
				}
				fmt.Fprintf(a.stdout, "\nnext: yett approve %s%s, or yett deny %s\n\n", p.ApprovalID, forHint(p), p.ApprovalID)
			}
			return nil
		},
	}
}

// forHint offers a length where one makes sense: not for a single action.
func forHint(p wire.Approval) string {
	var c struct {
		Request *struct{} `json:"request"`
	}
	if json.Unmarshal(p.Card, &c) == nil && c.Request != nil {
		return ""
	}
	return " [--for 30m]"
}
