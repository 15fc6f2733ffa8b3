package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/loginkeys"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newVaultKeychain(a *app) *cobra.Command {
	c := &cobra.Command{Use: "keychain", Short: "Let the login keychain of this Mac open the vault", Args: cobra.NoArgs,
		Long: "A random share in the login keychain opens the vault in place of the passphrase: yett unlock\n" +
			"--keychain. From then on whoever can read that item, as you or in your name, can unlock.\n" +
			"It approves nothing: cards and changes want a proof as before.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(&cobra.Command{
		Use:   "add",
		Short: "Put a new share into the login keychain, with your passphrase",
		Long: "A share that was there before opens nothing any more. The keychain lets the program that\n" +
			"made the item read it without asking; after an update of Yett it asks you once.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.addShare(c.Context()) },
	}, &cobra.Command{
		Use:   "remove",
		Short: "Remove the keychain slot from the vault, and the share from the keychain",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.removeShare(c.Context()) },
	})
	return c
}

// addShare puts the share into the keychain first: a slot without a share would
// open with nothing. A crash in between leaves an item that opens nothing.
func (a *app) addShare(ctx context.Context) error {
	store, err := a.shareStore()
	if err != nil {
		return err
	}
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	old, err := keychainSalt(ctx, conn)
	if err != nil {
		return err
	}
	share, salt := vault.NewShare()
	defer clear(share)
	if err := store.AddShare(ctx, salt, share); err != nil {
		return loginFailed(err)
	}
	done, err := a.setShare(ctx, conn, share, salt)
	if err != nil {
		return errors.Join(err, store.RemoveShare(context.WithoutCancel(ctx), salt))
	}
	if old != nil {
		if err := store.RemoveShare(ctx, old); err != nil {
			a.note("The share of before stays in the keychain (%s); it opens older copies of the vault only.", printable(err.Error()))
		}
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"slot": vault.SlotKeychain, "generation": done.Generation, "warning": done.Warning})
	}
	a.advise("The login keychain opens the vault: yett unlock --keychain. Take it back with: yett vault keychain remove.")
	a.warn(done.Warning)
	return nil
}

func (a *app) setShare(ctx context.Context, conn *client.Conn, share, salt []byte) (done wire.SlotWasSet, err error) {
	unlock, err := vault.ShareUnlockKey(share, salt)
	if err != nil {
		return done, err
	}
	defer clear(unlock)
	err = a.prove(ctx, conn, wire.MethodKeychainSet, wire.KeychainSet{Salt: salt, UnlockKey: unlock}, &done)
	return done, err
}

// removeShare removes the slot on any system, since a vault may have been carried
// away from its Mac, and the share where there is a keychain.
func (a *app) removeShare(ctx context.Context) error {
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	salt, err := keychainSalt(ctx, conn)
	if err != nil {
		return err
	}
	if salt == nil {
		return noKeychainSlot()
	}
	var done wire.SlotWasSet
	if err := a.prove(ctx, conn, wire.MethodKeychainRemove, wire.Empty{}, &done); err != nil {
		return err
	}
	store, err := a.shareStore()
	if err == nil {
		err = store.RemoveShare(ctx, salt)
	}
	if a.json {
		err := printJSON(a.stdout, map[string]any{"slot": vault.SlotKeychain, "generation": done.Generation, "warning": done.Warning, "share_removed": err == nil})
		return err
	}
	fmt.Fprintln(a.stdout, "Removed. The share opens older backups, and nothing that is saved from now on.")
	if err != nil {
		a.note("The share itself stays in the keychain that it was made in (%s).", printable(err.Error()))
	}
	a.warn(done.Warning)
	return nil
}

func noKeychainSlot() *wire.Error {
	return wire.Errorf(wire.CodeBadRequest, "The vault has no keychain slot.").
		Then("Add one while it is unlocked: yett vault keychain add.")
}

// unlockByKeychain sends the unlock key that the share in the keychain gives.
func (a *app) unlockByKeychain(ctx context.Context, conn *client.Conn, result *wire.Unlocked) error {
	store, err := a.shareStore()
	if err != nil {
		return err
	}
	salt, err := keychainSalt(ctx, conn)
	if err != nil {
		return err
	}
	if salt == nil {
		return noKeychainSlot()
	}
	err = store.UseShare(ctx, salt, func(share []byte) error {
		key, err := vault.ShareUnlockKey(share, salt)
		if err != nil {
			return err
		}
		defer clear(key)
		raw, err := json.Marshal(wire.Unlock{Slot: vault.SlotKeychain, UnlockKey: key})
		if err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
		defer clear(raw)
		return callRaw(ctx, conn, wire.MethodVaultUnlock, raw, nil, result)
	})
	if errors.Is(err, &wire.Error{Code: wire.CodeProofInvalid}) {
		e := wire.Errorf(wire.CodeProofInvalid, "The share in the login keychain does not open this vault.")
		e.NextStep = "Unlock with the passphrase, then make a new share: yett vault keychain add."
		return e
	}
	if errors.Is(err, loginkeys.ErrNoItem) {
		return wire.Errorf(wire.CodeProofRequired, "The login keychain has no share of this vault.").
			Then("Unlock with the passphrase, then make a new share: yett vault keychain add.")
	}
	return loginFailed(err)
}
