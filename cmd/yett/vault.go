package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newVault(a *app) *cobra.Command {
	return parent("vault", "Change what opens the vault; back it up and restore it", newVaultPassphrase(a), newVaultRecoveryCode(a), newVaultRecover(a), newVaultKeychain(a), newVaultBackup(a), newVaultRestore(a))
}

// dialUnlocked connects to a broker that has its vault open.
func (a *app) dialUnlocked(ctx context.Context) (*client.Conn, error) {
	conn, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	var st wire.Status
	err = call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st)
	if err == nil && st.State == "locked" {
		e := wire.NewError(wire.CodeLocked)
		e.NextStep = "Unlock it first: yett unlock. The recovery code opens it too."
		err = e
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// setSlot derives the keys of a new passphrase or code here and sends them with
// the person's proof.
func (a *app) setSlot(ctx context.Context, conn *client.Conn, name string, secret []byte) (wire.SlotWasSet, error) {
	var done wire.SlotWasSet
	kdf := vault.NewKDF()
	keys, err := vault.Derive(secret, kdf)
	if err != nil {
		return done, err
	}
	defer keys.Wipe()
	request := wire.SlotSet{Slot: challengeSlot(vault.Slot{Name: name, KDF: kdf}), UnlockKey: keys.Unlock, ApprovalKey: keys.Approval}
	err = a.prove(ctx, conn, wire.MethodVaultSetSlot, request, &done)
	return done, err
}

func challengeSlot(s vault.Slot) wire.ChallengeSlot {
	return wire.ChallengeSlot{Name: s.Name, Salt: s.KDF.Salt, Time: s.KDF.Time, MemoryKiB: s.KDF.MemoryKiB, Threads: s.KDF.Threads, Form: s.KDF.Form}
}

func challengeSlots(slots []vault.Slot) []wire.ChallengeSlot {
	all := make([]wire.ChallengeSlot, len(slots))
	for i, s := range slots {
		all[i] = challengeSlot(s)
	}
	return all
}

// openFile opens a vault that no broker holds, with the phrase that was given.
func (a *app) openFile(v *vault.Vault, phrase []byte) error {
	slot, keys, err := a.derive(phrase, challengeSlots(v.Slots()))
	if err != nil {
		return err
	}
	err = v.Unlock(slot, keys.Unlock)
	if errors.Is(err, vault.ErrWrongKey) {
		a.forgetKeys() // another phrase may be tried on this vault
		return wire.NewError(wire.CodeProofInvalid)
	}
	return err
}

func (a *app) forgetKeys() {
	for id, keys := range a.keys {
		keys.Wipe()
		delete(a.keys, id)
	}
}

// choosePassphrase reads a new passphrase from a descriptor, or asks for it on
// the terminal.
func (a *app) choosePassphrase(ctx context.Context, fd int) ([]byte, error) {
	if fd >= 0 {
		phrase, err := readPhrase(fd)
		if err != nil {
			return phrase, err
		}
		if fail := checkNew(phrase); fail != nil {
			return phrase, fail
		}
		return phrase, nil
	}
	phrase, err := askNewPassphrase(ctx)
	return phrase, needs("--new-passphrase-fd", err)
}

// askNewPassphrase asks twice on the terminal, and anew, a few times, where what
// was typed cannot be used. What it must have is said before it is typed.
func askNewPassphrase(ctx context.Context) ([]byte, error) {
	var why *wire.Error
	say := sentence(vault.ErrPassphraseShort.Error())
	for range askedAgain {
		phrase, err := askHidden(ctx, say+"\nNew Yett passphrase: ")
		if err != nil {
			return nil, err
		}
		if why = checkNew(phrase); why == nil {
			again, err := askHidden(ctx, "The same again: ")
			same := bytes.Equal(phrase, again)
			clear(again)
			if err == nil && same {
				return phrase, nil
			}
			if err != nil {
				clear(phrase)
				return nil, err
			}
			why = &wire.Error{Code: wire.CodeBadRequest, Message: "The two passphrases differ.", NextStep: "Run it again and type the same passphrase twice."}
		}
		clear(phrase)
		say = "Once more. " + why.Message
	}
	return nil, why
}

func checkNew(phrase []byte) *wire.Error {
	if err := vault.CheckPassphrase(phrase); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Message: sentence(err.Error()), NextStep: "Choose a longer one; several words are good."}
	}
	if vault.IsRecoveryCode(phrase) {
		return &wire.Error{Code: wire.CodeBadRequest, Message: "A recovery code is no passphrase: it would be taken for the code.", NextStep: "Choose words of your own."}
	}
	return nil
}

// needs names the flag that replaces the terminal that is not there.
func needs(flag string, err error) error {
	var fail *wire.Error
	if errors.As(err, &fail) && fail.Code == wire.CodeProofRequired {
		e := *fail
		e.NextStep = "Run it in a terminal, or give " + flag + "."
		return &e
	}
	return err
}

// ownDescriptors refuses one descriptor for two secrets.
func (a *app) ownDescriptors(flags map[string]int) error {
	taken := map[int]string{}
	if a.passFD >= 0 {
		taken[a.passFD] = "passphrase-fd"
	}
	for name, fd := range flags {
		if fd < 0 {
			continue
		}
		if other, ok := taken[fd]; ok {
			return usageError{fmt.Errorf("--%s and --%s name one descriptor; give each its own", name, other)}
		}
		taken[fd] = name
	}
	return nil
}
