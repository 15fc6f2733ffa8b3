package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newUnlock(a *app) *cobra.Command {
	var byCode, byKeychain bool
	c := &cobra.Command{
		Use:   "unlock",
		Short: "Open the vault of the running broker",
		Long: "Opens the vault with the passphrase, or with the recovery code in its place. The\n" +
			"passphrase itself is not sent: the broker gets a key that was derived from it.\n\n" +
			"Sessions that were paused, because nobody used Yett for a while or because the\n" +
			"machine slept, are listed first. The proof resumes those whose process, channel\n" +
			"and end still stand; yett lock ends all of them instead.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			conn, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := a.showPaused(ctx, conn); err != nil {
				return err
			}
			if byCode {
				if err := a.recoveryCode(ctx); err != nil {
					return err
				}
			}
			var u wire.Unlocked
			unlock := a.unlock
			if byKeychain {
				unlock = a.unlockByKeychain
			}
			if err := unlock(ctx, conn, &u); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, struct {
					State string `json:"state"`
					wire.Unlocked
				}{"ready", u})
			}
			a.printUnlocked(u)
			return nil
		},
	}
	c.Flags().BoolVar(&byKeychain, "keychain", false, "open it with the share in the login keychain; on a Mac, see yett vault keychain")
	c.Flags().BoolVar(&byCode, "recovery", false, "ask for the recovery code instead of the passphrase")
	c.MarkFlagsMutuallyExclusive("keychain", "recovery")
	return c
}

// unlock sends the unlock key of the slot that the phrase is for.
func (a *app) unlock(ctx context.Context, conn *client.Conn, result *wire.Unlocked) error {
	return a.withKeys(ctx, conn, func(slot string, keys *vault.Keys, _ string) error {
		raw, err := json.Marshal(wire.Unlock{Slot: slot, UnlockKey: keys.Unlock})
		if err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
		defer clear(raw)
		return callRaw(ctx, conn, wire.MethodVaultUnlock, raw, nil, result)
	})
}

func (a *app) printUnlocked(u wire.Unlocked) {
	fmt.Fprintln(a.stdout, "Unlocked.")
	for _, n := range u.Notices {
		fmt.Fprintf(a.stdout, "note: %s\n", n)
	}
	for _, s := range u.Resumed {
		fmt.Fprintf(a.stdout, "resumed %s: %s pid %d, %s\n", s.SessionID, s.Program, s.PID, pausedText(s))
	}
	for _, s := range u.Ended {
		fmt.Fprintf(a.stdout, "ended   %s: %s pid %d (%s)\n", s.SessionID, s.Program, s.PID, s.EndReason)
	}
}

// showPaused lists, before the proof, what the proof would resume.
func (a *app) showPaused(ctx context.Context, conn *client.Conn) error {
	var l wire.List[wire.Resumed]
	if err := call(ctx, conn, wire.MethodSessionPaused, wire.Empty{}, nil, &l); err != nil {
		return err
	}
	if len(l.Items) == 0 {
		return nil
	}
	a.note("Unlocking resumes these paused sessions, if their process is still there:")
	for _, s := range l.Items {
		a.note("  %s: %s", s.SessionID, pausedText(s))
	}
	return nil
}

func pausedText(s wire.Resumed) string {
	what := strings.Join(s.Capabilities, ", ")
	if what == "" {
		what = "nothing granted"
	}
	return what + ", until " + s.ExpiresAt.Local().Format(time.TimeOnly)
}
