package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newInit(a *app) *cobra.Command {
	recoveryFD := -1
	c := &cobra.Command{
		Use:   "init",
		Short: "Make the vault",
		Long: "Makes a new vault, protected by a passphrase, and a recovery code that opens it too.\n" +
			"The code is shown once, on the terminal or to --recovery-fd, and stored nowhere.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.initialise(c.Context(), recoveryFD) },
	}
	c.Flags().IntVar(&recoveryFD, "recovery-fd", -1, "write the recovery code to file descriptor `N`")
	return c
}

func (a *app) initialise(ctx context.Context, recoveryFD int) error {
	loc, err := a.location()
	if err != nil {
		return err
	}
	shown, err := a.createVault(ctx, loc, recoveryFD)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"home": loc.Home, "recovery_shown": shown})
	}
	a.printCreated(loc, shown)
	return a.advise("next: yett up")
}

// createVault makes the vault of a home that has none, and reports whether the
// recovery code was shown to anybody.
func (a *app) createVault(ctx context.Context, loc endpoint.Location, recoveryFD int) (shown bool, err error) {
	if vault.Exists(loc.Home) {
		return false, cannotCreate(loc, vault.ErrExists)
	}
	if err := endpoint.CheckAbove(loc); err != nil { // no broker would use it
		return false, cannotCreate(loc, err)
	}
	show, err := recoverySink(recoveryFD)
	if err != nil {
		return false, err
	}
	phrase, err := a.newPassphrase(ctx)
	if err != nil {
		return false, err
	}
	code, err := vault.Create(loc.Home, phrase)
	if err != nil {
		return false, cannotCreate(loc, err)
	}
	if show == nil {
		return false, nil
	}
	if err := show(code); err != nil {
		return false, wire.Errorf(wire.CodeInternal, "The vault was made, but the recovery code could not be shown: %v.", err).
			Then("Remove the new vault in " + loc.Home + " and run it again; it holds nothing yet.")
	}
	return true, nil
}

func (a *app) printCreated(loc endpoint.Location, shown bool) {
	fmt.Fprintf(a.stdout, "The vault is made: %s\n", loc.Home)
	if !shown {
		fmt.Fprintln(a.stdout, "There was no terminal and no --recovery-fd, so the recovery code was shown to nobody: the passphrase is the only way in.")
	}
}

// recoverySink returns how the recovery code is shown, or nil when there is no
// terminal and no descriptor for it.
func recoverySink(fd int) (func(string) error, error) {
	if fd >= 0 {
		f, err := inherited(fd, true)
		if err != nil {
			return nil, err
		}
		return func(code string) error {
			_, err := fmt.Fprintln(f, code)
			return err
		}, nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return nil, nil
	}
	return func(code string) error {
		defer tty.Close()
		_, err := fmt.Fprintf(tty, "\nRecovery code, shown once. Write it down and keep it away from this machine:\n\n    %s\n\n", code)
		return err
	}, nil
}

// newPassphrase asks on a terminal; a descriptor is read once. The passphrase
// is kept for what else the command does with the new vault.
func (a *app) newPassphrase(ctx context.Context) (phrase []byte, err error) {
	if a.passFD >= 0 {
		return a.secretPhrase(ctx, "")
	}
	a.passphrase, err = askNewPassphrase(ctx)
	return a.passphrase, err
}

func cannotCreate(loc endpoint.Location, err error) error {
	e := wire.Errorf(wire.CodeBadRequest, "The vault cannot be made in %s: %v.", loc.Home, err)
	switch {
	case errors.Is(err, vault.ErrExists):
		e.Message = fmt.Sprintf("There is a vault in %s already; it was left as it is.", loc.Home)
		e.NextStep = "Use it: yett up."
	case errors.Is(err, vault.ErrPassphraseShort):
		e.Message, e.NextStep = sentence(err.Error()), "Choose a longer one; several words are good."
	default:
		e.NextStep = "Check the directory's owner and permissions."
	}
	return e
}
