package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newVaultRecoveryCode(a *app) *cobra.Command {
	fd := -1
	c := &cobra.Command{
		Use:   "recovery-code",
		Short: "Replace the recovery code",
		Long: "Shows a new recovery code, once, on the terminal or to --recovery-fd, and then makes\n" +
			"it the valid one. Until the command says so the old code stays valid.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.replaceCode(c.Context(), fd) },
	}
	c.Flags().IntVar(&fd, "recovery-fd", -1, "write the new recovery code to file descriptor `N`")
	return c
}

func newVaultRecover(a *app) *cobra.Command {
	newFD, codeFD, keep := -1, -1, false
	c := &cobra.Command{
		Use:   "recover",
		Short: "Set a new passphrase with the recovery code",
		Long: "For a passphrase that was forgotten: the recovery code opens the vault of the running\n" +
			"broker, and a new passphrase is set. The used code is then replaced by a new one, if\n" +
			"there is a terminal or --recovery-fd to show it on. --passphrase-fd gives the code.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.recover(c.Context(), newFD, codeFD, keep) },
	}
	c.Flags().IntVar(&newFD, "new-passphrase-fd", -1, "read the new passphrase, one line, from file descriptor `N`")
	c.Flags().IntVar(&codeFD, "recovery-fd", -1, "write the new recovery code to file descriptor `N`")
	c.Flags().BoolVar(&keep, "keep-code", false, "keep the used recovery code")
	return c
}

func (a *app) replaceCode(ctx context.Context, fd int) error {
	if err := a.ownDescriptors(map[string]int{"recovery-fd": fd}); err != nil {
		return err
	}
	show, err := recoverySink(fd)
	if err != nil {
		return err
	}
	if show == nil {
		return wire.Errorf(wire.CodeBadRequest, "There is no terminal to show the new recovery code on; nothing was changed.").
			Then("Run it in a terminal, or give --recovery-fd.")
	}
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := a.secretPhrase(ctx, "Yett passphrase: "); err != nil {
		return err
	}
	done, err := a.showAndSetCode(ctx, conn, show, fd < 0)
	if err != nil {
		return err
	}
	done.Warning = a.warnOfAsides(done.Warning)
	if a.json {
		return printJSON(a.stdout, map[string]any{"slot": vault.SlotRecovery, "generation": done.Generation, "warning": done.Warning, "recovery_shown": true})
	}
	fmt.Fprintln(a.stdout, "The new recovery code is valid; the old one opens older backups and vaults that were put aside, and nothing else.")
	a.warn(done.Warning)
	return nil
}

// showAndSetCode shows a code before it becomes the valid one: whatever ends
// the command in between, a code that the person has is valid.
func (a *app) showAndSetCode(ctx context.Context, conn *client.Conn, show func(string) error, confirm bool) (wire.SlotWasSet, error) {
	code := vault.NewRecoveryCode()
	if err := show(code); err != nil {
		return wire.SlotWasSet{}, wire.Errorf(wire.CodeInternal, "The new recovery code could not be shown: %v; the old one stays valid.", err).
			Then("Repair that and run it again.")
	}
	normal, err := vault.NormalizeRecovery([]byte(code))
	if err != nil {
		return wire.SlotWasSet{}, err
	}
	defer clear(normal)
	if confirm {
		if err := confirmCode(ctx, normal); err != nil {
			return wire.SlotWasSet{}, err
		}
	}
	done, err := a.setSlot(ctx, conn, vault.SlotRecovery, normal)
	if err != nil {
		a.note("The recovery code that was just shown is not valid; throw it away.")
	}
	return done, err
}

// confirmCode lets the person type the end of the code from paper.
func confirmCode(ctx context.Context, normal []byte) error {
	for range 3 {
		typed, err := ask(ctx, "Written down? Type its last group to make it valid: ", false)
		if err != nil {
			return err
		}
		if bytes.Equal(vault.NormalizeGroup(typed), normal[len(normal)-len("XXXXX"):]) {
			return nil
		}
	}
	return wire.Errorf(wire.CodeBadRequest, "That is not its last group. The code that was shown is not valid; the old one is.").
		Then("Run it again and write the code down.")
}

// recover sets the passphrase first and the code second, each in one step: after
// the first the new passphrase opens the vault, and so does the old code.
func (a *app) recover(ctx context.Context, newFD, codeFD int, keep bool) error {
	if err := a.ownDescriptors(map[string]int{"new-passphrase-fd": newFD, "recovery-fd": codeFD}); err != nil {
		return err
	}
	var show func(string) error
	if !keep {
		var err error
		if show, err = recoverySink(codeFD); err != nil {
			return err
		}
	}
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.recoveryCode(ctx); err != nil {
		return err
	}
	if _, err := a.unlockIfLocked(ctx, conn); err != nil {
		return err
	}
	phrase, err := a.choosePassphrase(ctx, newFD)
	defer clear(phrase)
	if err != nil {
		return err
	}
	done, err := a.setSlot(ctx, conn, vault.SlotPassphrase, phrase)
	if err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintln(a.stdout, "The new passphrase is valid.")
	}
	replaced := false
	if show != nil {
		next, err := a.showAndSetCode(ctx, conn, show, codeFD < 0)
		if err != nil {
			a.note("The new passphrase is valid all the same, and so is the recovery code that you used.")
			return err
		}
		done, replaced = next, true
	}
	done.Warning = a.warnOfAsides(done.Warning)
	if a.json {
		return printJSON(a.stdout, map[string]any{"slot": vault.SlotPassphrase, "generation": done.Generation, "warning": done.Warning, "recovery_shown": replaced})
	}
	if replaced {
		fmt.Fprintln(a.stdout, "The new recovery code is valid; the used one opens older backups and vaults that were put aside, and nothing else.")
	} else {
		a.advise("The used recovery code stays valid. Replace it: yett vault recovery-code.")
	}
	a.warn(done.Warning)
	return nil
}

// recoveryCode asks for the recovery code, and says so if it is mistyped rather
// than taking it for a passphrase.
func (a *app) recoveryCode(ctx context.Context) error {
	phrase, err := a.secretPhrase(ctx, "Recovery code: ")
	if err != nil {
		return err
	}
	normal, err := vault.NormalizeRecovery(phrase)
	clear(normal)
	if err != nil {
		return wire.Errorf(wire.CodeProofInvalid, "%s", sentence(err.Error())).
			Then("Type it as it was printed: eight groups of five. Case, spaces and dashes do not count.")
	}
	return nil
}

// unlockIfLocked opens the broker's vault with what was given as proof.
func (a *app) unlockIfLocked(ctx context.Context, conn *client.Conn) (wire.Unlocked, error) {
	var u wire.Unlocked
	var st wire.Status
	if err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st); err != nil || st.State != "locked" {
		return u, err
	}
	err := a.unlock(ctx, conn, &u)
	return u, err
}
