package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newVaultPassphrase(a *app) *cobra.Command {
	newFD := -1
	c := &cobra.Command{
		Use:   "passphrase",
		Short: "Change the passphrase",
		Long: "Changes the passphrase. The present one, or the recovery code in its place, is the\n" +
			"proof; the recovery code stays as it is. Waiting cards and readings that were\n" +
			"opened before are void; sessions go on. An older backup still opens with the\n" +
			"passphrase that was valid when it was made.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.changePassphrase(c.Context(), newFD) },
	}
	c.Flags().IntVar(&newFD, "new-passphrase-fd", -1, "read the new passphrase, one line, from file descriptor `N`")
	return c
}

func (a *app) changePassphrase(ctx context.Context, newFD int) error {
	if err := a.ownDescriptors(map[string]int{"new-passphrase-fd": newFD}); err != nil {
		return err
	}
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	old, err := a.secretPhrase(ctx, "Present Yett passphrase, or the recovery code: ")
	if err != nil {
		return err
	}
	phrase, err := a.choosePassphrase(ctx, newFD)
	defer clear(phrase)
	if err != nil {
		return err
	}
	if bytes.Equal(old, phrase) {
		return &wire.Error{Code: wire.CodeBadRequest, Message: "That is the present passphrase; nothing was changed.", NextStep: "Choose another one."}
	}
	done, err := a.setSlot(ctx, conn, vault.SlotPassphrase, phrase)
	if err != nil {
		return err
	}
	done.Warning = a.warnOfAsides(done.Warning)
	if a.json {
		return printJSON(a.stdout, map[string]any{"slot": vault.SlotPassphrase, "generation": done.Generation, "warning": done.Warning})
	}
	fmt.Fprintln(a.stdout, "The passphrase is changed. The old one opens older backups and vaults that were put aside, and nothing else.")
	a.warn(done.Warning)
	return nil
}

func (a *app) warn(warning string) {
	if warning != "" {
		a.note("warning: %s", warning)
	}
}
