package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

func newSessions(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions of this broker, ended ones too",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var l wire.List[wire.Session]
			if err := a.read(c.Context(), wire.MethodSessionList, wire.Empty{}, &l); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, l.Items)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
			for _, s := range l.Items {
				state := s.State
				if s.EndReason != "" {
					state += " (" + s.EndReason + ")"
				}
				k := s.Caller.Subject().Kernel
				fmt.Fprintf(w, "%s\t%s\t%s\t%s pid %d\t%s\tends by %s\n", s.SessionID, state, s.Unit, approval.Escape(programOf(k.ExePath), 200), k.PID,
					strings.Join(grantWords(s, localTime), ", "), localTime(s.ExpiresAt))
			}
			w.Flush()
			a.hidden(l.Hidden, "sessions")
			return nil
		},
	}
}

func localTime(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// grantWords name what a session may use, each with its own end: a grant may end
// before its session.
func grantWords(s wire.Session, at func(time.Time) string) []string {
	var words []string
	for _, g := range s.Grants {
		how := "until "
		if g.Once {
			how = "once, until "
		}
		words = append(words, g.Capability+" ("+how+at(g.Until)+")")
	}
	return words
}
