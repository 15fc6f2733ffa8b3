package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

func newSessions(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions of this broker, ended ones too",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := readList[wire.Session](c.Context(), a, wire.MethodSessionList)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, l.Items)
			}
			if len(l.Items)+l.Hidden == 0 && !a.locked {
				fmt.Fprintln(a.stdout, "No session since this broker started.")
			}
			printSessions(a.stdout, l.Items)
			a.hidden(l.Hidden, "sessions")
			if l.Hidden > 0 {
				a.note("To end them no passphrase is needed: yett revoke --pid N, or yett revoke --all")
			}
			return nil
		},
	}
}

// printSessions prints a line for each session: a live one says what it may use
// and until when, an ended one why it ended.
func printSessions(out io.Writer, sessions []wire.Session) {
	w := aligned(out)
	if len(sessions) > 0 {
		fmt.Fprintln(w, "SESSION\tSTATE\tUNIT\tPROGRAM\tSINCE\tMAY USE")
	}
	for _, s := range sessions {
		k := s.Caller.Subject().Kernel
		state, use := s.State, strings.Join(screen.GrantWords(s, localTime), ", ")
		switch {
		case s.EndReason != "":
			state, use = state+" ("+s.EndReason+")", "—"
		case use == "":
			use = "nothing yet; ends by " + localTime(s.ExpiresAt)
		default:
			use += "; ends by " + localTime(s.ExpiresAt)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s pid %d\t%s\t%s\n", s.SessionID, state, s.Unit, approval.Escape(screen.Program(k.ExePath), 200), k.PID, localTime(s.BeganAt), use)
	}
	w.Flush()
}

func localTime(t time.Time) string { return t.Local().Format(time.TimeOnly) }
