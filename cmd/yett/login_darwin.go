package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yett-broker/yett/internal/loginkeys"
	"github.com/yett-broker/yett/internal/macos"
	"github.com/yett-broker/yett/internal/macos/system"
)

// promptTime is how long the system's prompt stands.
const promptTime = 2 * time.Minute

// openLogin opens the login keychain of this account, and the way to the sensor.
func openLogin() (loginkeys.Store, error) {
	k, err := system.OpenKeychain(system.CoreFoundation, system.Security)
	if err != nil {
		return loginkeys.Store{}, err
	}
	t, err := system.OpenTouchID(system.LibSystem, system.CoreFoundation, system.LibObjC, system.LocalAuthentication)
	return loginkeys.Store{Keychain: keychain{k}, Gate: finger{t}}, err
}

// keychain gives the errors that loginkeys branches on.
type keychain struct{ k *system.Keychain }

func (c keychain) Add(service, account, label string, value []byte) error {
	return keychainFailed(c.k.Add(service, account, label, value))
}

func (c keychain) Read(service, account string) ([]byte, error) {
	value, err := c.k.Read(service, account)
	return value, keychainFailed(err)
}

func (c keychain) Delete(service, account string) error {
	return keychainFailed(c.k.Delete(service, account))
}

func keychainFailed(err error) error {
	switch {
	case errors.Is(err, macos.ErrNoItem):
		return fmt.Errorf("%w: %w", loginkeys.ErrNoItem, err)
	case errors.Is(err, macos.ErrItemThere):
		return fmt.Errorf("%w: %w", loginkeys.ErrItemThere, err)
	}
	return err
}

// finger asks for the finger and takes no password in its place.
type finger struct{ t *system.TouchID }

func (f finger) Ask(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, promptTime)
	defer cancel()
	return f.t.Ask(ctx, macos.Biometrics, reason)
}
