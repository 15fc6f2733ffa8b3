package main

import (
	"context"
	"errors"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/loginkeys"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// errNotMac: this system has neither a login keychain nor Touch ID.
var errNotMac = errors.New("this system has no login keychain")

// touchStore opens what Touch ID needs.
func (a *app) touchStore() (loginkeys.Store, error) {
	s, err := a.login()
	if errors.Is(err, errNotMac) {
		return s, wire.Errorf(wire.CodeProofRequired, "Touch ID is a macOS proof; this system has none.").
			Then("Prove with the passphrase, or with a passkey in the console: yett console.")
	}
	return s, loginFailed(err)
}

// shareStore opens what the keychain slot needs.
func (a *app) shareStore() (loginkeys.Store, error) {
	s, err := a.login()
	if errors.Is(err, errNotMac) {
		return s, wire.Errorf(wire.CodeProofRequired, "The login keychain is of macOS; this system has none.").
			Then("Unlock with the passphrase: yett unlock.")
	}
	return s, loginFailed(err)
}

// loginFailed says why the keychain or the person's finger did not serve.
func loginFailed(err error) error {
	var fail *wire.Error
	if err == nil || errors.As(err, &fail) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return wire.Errorf(wire.ReasonDenied, "%s", sentence(printable(err.Error()))).
		Then("Nothing was done. Try again, or use the passphrase.")
}

// keychainSalt is the salt of the vault's keychain slot, nil if it has none.
func keychainSalt(ctx context.Context, conn *client.Conn) ([]byte, error) {
	var c wire.Challenge
	if err := call(ctx, conn, wire.MethodVaultChallenge, wire.Empty{}, nil, &c); err != nil {
		return nil, err
	}
	for _, s := range c.Slots {
		if s.Name == vault.SlotKeychain {
			return s.Salt, nil
		}
	}
	return nil, nil
}
