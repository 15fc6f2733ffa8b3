package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

type restoreFlags struct {
	presentFD    int
	older, other bool
}

func newVaultRestore(a *app) *cobra.Command {
	f := restoreFlags{presentFD: -1}
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the vault's place",
		Long: "Puts a backup in the place of the vault, while no broker runs. The proof is the\n" +
			"passphrase or recovery code of the backup, and of the vault that is there if that\n" +
			"is another one. What was there is kept beside it. The next unlocking records it.\n\n" +
			"A backup that is older than the vault, or of another vault, loses something and\n" +
			"wants --older or --other, or a yes on the terminal.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.restoreVault(c.Context(), args[0], f) },
	}
	c.Flags().IntVar(&f.presentFD, "present-passphrase-fd", -1, "read the passphrase of the vault that is there, if it is another, from file descriptor `N`")
	c.Flags().BoolVar(&f.older, "older", false, "put an older generation in place: what was changed since is lost")
	c.Flags().BoolVar(&f.other, "other", false, "put another vault in place: the ledger's rows open with the present one only")
	return c
}

func (a *app) restoreVault(ctx context.Context, path string, f restoreFlags) error {
	if err := a.ownDescriptors(map[string]int{"present-passphrase-fd": f.presentFD}); err != nil {
		return err
	}
	loc, err := a.location()
	if err != nil {
		return err
	}
	backup, err := vault.ReadBackup(path)
	if err != nil {
		return unusableBackup(path, err)
	}
	release, err := endpoint.Hold(loc) // no broker starts while this goes on
	if err != nil {
		return brokerInTheWay(loc, err)
	}
	defer release()
	present, err := presentVault(loc)
	if err != nil {
		return err
	}
	phrase, err := a.secretPhrase(ctx, "Passphrase of the backup, or its recovery code: ")
	if err != nil {
		return err
	}
	if err := a.openFile(backup, phrase); err != nil {
		return err
	}
	defer backup.Lock()
	if present != nil {
		if err := a.provePresent(ctx, present, phrase, f.presentFD); err != nil {
			return err
		}
		defer present.Lock()
		if err := a.acceptLoss(ctx, backup, present, f); err != nil {
			return err
		}
	}
	done, err := backup.Restore(loc.Home)
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "%s", sentence(printable(err.Error()))).
			Then("Look at the files in " + loc.Home + ": vault.yett is the vault that was there, or the backup, whole.")
	}
	older := done.Backup < done.Replaced
	if a.json {
		return printJSON(a.stdout, map[string]any{"generation": done.Generation, "backup_generation": done.Backup,
			"replaced_generation": done.Replaced, "older": older, "aside": done.Aside})
	}
	fmt.Fprintf(a.stdout, "Generation %d of the backup is in place, as generation %d.\n", done.Backup, done.Generation)
	if done.Aside != "" {
		fmt.Fprintf(a.stdout, "What was there is kept: %s\n", done.Aside)
	}
	return a.advise("next: yett up")
}

// presentVault is the vault that is there, nil if none is or if it is damaged:
// then there is nothing to prove anything against.
func presentVault(loc endpoint.Location) (*vault.Vault, error) {
	present, err := vault.Load(loc.Home)
	if errors.Is(err, vault.ErrNoVault) || errors.Is(err, vault.ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, vaultUnusable(loc, err)
	}
	return present, nil
}

// provePresent opens the vault that is there, so that nobody puts an old vault
// and its old passphrase in place of one that he cannot open.
func (a *app) provePresent(ctx context.Context, present *vault.Vault, phrase []byte, fd int) error {
	err := a.openFile(present, phrase)
	var fail *wire.Error
	if err == nil || !errors.As(err, &fail) || fail.Code != wire.CodeProofInvalid {
		return err
	}
	var other []byte
	if fd >= 0 {
		other, err = readPhrase(fd)
	} else {
		a.note("The vault that is there opens with another passphrase than the backup.")
		other, err = askHidden(ctx, "Passphrase of the vault that is there, or its recovery code: ")
	}
	if err != nil {
		return needs("--present-passphrase-fd", err)
	}
	defer clear(other)
	return a.openFile(present, other)
}

// acceptLoss lets the person decide about what a restore would lose.
func (a *app) acceptLoss(ctx context.Context, backup, present *vault.Vault, f restoreFlags) error {
	same := bytes.Equal(backup.AuditPublicKey(), present.AuditPublicKey())
	var loss, flag string
	switch {
	case !same && !f.other:
		loss, flag = "The backup is of another vault: with it, rows that the ledger has cannot be read.", "--other"
	case same && backup.Generation() < present.Generation() && !f.older:
		loss = fmt.Sprintf("The backup is of generation %d, the vault of generation %d: what was changed in between is lost.", backup.Generation(), present.Generation())
		flag = "--older"
	default:
		return nil
	}
	refusal := wire.Errorf(wire.CodeBadRequest, "%s Nothing was changed.", loss)
	refusal.NextStep = "If that is meant, run it again with " + flag + "."
	if a.json || a.passFD >= 0 {
		return refusal
	}
	a.note("%s", loss)
	yes, err := askYes(ctx, "Type yes to go on: ")
	if err != nil {
		return err
	}
	if !yes {
		refusal.Message, refusal.NextStep = "Nothing was changed.", ""
		return refusal
	}
	return nil
}

func unusableBackup(path string, err error) error {
	e := wire.Errorf(wire.CodeBadRequest, "%s cannot be restored: %s.", printable(path), printable(err.Error()))
	switch {
	case errors.Is(err, vault.ErrDamaged):
		e.NextStep = "Use another copy; the vault was left as it is."
	case errors.Is(err, vault.ErrVersion):
		e.NextStep = "Use the release that made it, or a later one."
	default:
		e.NextStep = "Give a file that yett vault backup made."
	}
	return e
}

func brokerInTheWay(loc endpoint.Location, err error) error {
	var used *endpoint.InUseError
	if !errors.As(err, &used) {
		return cannotListen(loc, err)
	}
	return wire.Errorf(wire.CodeBadRequest, "A broker has the vault (%s); nothing was changed.", used.Holder).
		Then("Stop it first: yett stop.")
}
