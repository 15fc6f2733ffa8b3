package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

func newPasskey(a *app) *cobra.Command {
	c := parent("passkey", "List or remove the passkeys that approve in the console", &cobra.Command{
		Use:   "list",
		Short: "List the passkeys, with their public keys' SHA-256",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.listPasskeys(c.Context()) },
	}, &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a passkey back, with your proof",
		Long: "From then on the passkey proves nothing, and what proofs had opened is closed. What it\n" +
			"approved before stays approved, and can still be checked.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.removePasskey(c.Context(), args[0]) },
	})
	c.Long = "A passkey approves in the console, with the fingerprint, face or PIN that its device asks for.\n" +
		"Add one there, with the passphrase: yett console."
	return c
}

func (a *app) listPasskeys(ctx context.Context) error {
	var l wire.List[wire.Passkey]
	if err := a.read(ctx, wire.MethodPasskeyList, wire.Empty{}, &l); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, l.Items)
	}
	if len(l.Items)+l.Hidden == 0 && !a.locked {
		a.note("There is no passkey. Add one in the console, with the passphrase: yett console.")
	}
	w := aligned(a.stdout)
	for _, k := range l.Items {
		fmt.Fprintf(w, "%s\tadded %s\t%s\n", screen.KeyName(k), k.AddedAt.Local().Format("2006-01-02 15:04"), k.Fingerprint)
	}
	w.Flush()
	a.hidden(l.Hidden, "passkeys")
	return nil
}

func (a *app) removePasskey(ctx context.Context, name string) error {
	if err := a.manageProven(ctx, wire.MethodPasskeyRemove, wire.PasskeyName{Name: name}, nil); err != nil {
		return err
	}
	return a.result(map[string]any{"name": name, "removed": true}, "Removed. It proves nothing any more.")
}
