// Package loginkeys is what Yett keeps in the login keychain of a Mac: the share
// that opens the vault, and the key that approves after a finger. It is the order
// of the steps and the form of the items, over a keychain and a gate that the
// system gives; the calls themselves stand in internal/macos/system.
//
// It trusts the keychain to keep an item from programs that the person did not
// let in, and the gate to say truly whether the person was there. The gate is a
// question of this program: whoever reads the item without this program is not
// asked. docs/macos.md says who that could be.
//
// An item is a generic password with a service, an account and a value:
//
//	service              account                     value
//	Yett vault share     the slot's salt, in hex     "yett-share-v1\n" and 32 bytes
//	Yett Touch ID key    the broker's home           "yett-touchid-v1\n" and the 32 bytes of an Ed25519 seed
//
// What is read is lent for one call and wiped after it.
package loginkeys

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Keychain keeps items, which survive a restart. Its calls may wait for the person
// and cannot be cancelled. Read gives a copy that the caller wipes. Their errors
// are ErrNoItem, ErrItemThere or others, as a wrapped cause.
type Keychain interface {
	Add(service, account, label string, value []byte) error
	Read(service, account string) ([]byte, error)
	Delete(service, account string) error
}

// Gate asks whether the person is there; nil is a yes. The reason stands in the
// prompt, behind the program's name and "is trying to". The end of ctx takes the
// prompt away.
type Gate interface {
	Ask(ctx context.Context, reason string) error
}

var (
	ErrNoItem    = errors.New("the keychain has no such item")
	ErrItemThere = errors.New("the keychain has such an item already")
	// ErrItem: the item has not the form that Yett writes.
	ErrItem = errors.New("the item in the keychain is not one of Yett's")
)

const (
	serviceShare   = "Yett vault share"
	serviceTouchID = "Yett Touch ID key"

	magicShare   = "yett-share-v1\n"
	magicTouchID = "yett-touchid-v1\n"

	keySize = 32

	// patience bounds a call of the keychain, which may show a prompt of its own.
	patience = 2 * time.Minute
)

// Store is the person's items.
type Store struct {
	Keychain Keychain
	Gate     Gate
}

// AddShare keeps the share of the slot with this salt.
func (s Store) AddShare(ctx context.Context, salt, share []byte) error {
	return s.add(ctx, serviceShare, hex.EncodeToString(salt), magicShare, share)
}

// UseShare lends the share of the slot with this salt. Nobody is asked: the
// keychain decides who may read it.
func (s Store) UseShare(ctx context.Context, salt []byte, use func(share []byte) error) error {
	return s.use(ctx, serviceShare, hex.EncodeToString(salt), magicShare, use)
}

// RemoveShare removes it; one that is not there is no error.
func (s Store) RemoveShare(ctx context.Context, salt []byte) error {
	return s.remove(ctx, serviceShare, hex.EncodeToString(salt))
}

// AddSeed keeps the Touch ID key of a home.
func (s Store) AddSeed(ctx context.Context, home string, seed []byte) error {
	return s.add(ctx, serviceTouchID, home, magicTouchID, seed)
}

// UseSeed asks the person and then lends the Touch ID key of a home. Without a yes
// the item is not read.
func (s Store) UseSeed(ctx context.Context, home, reason string, use func(seed []byte) error) error {
	if err := s.Gate.Ask(ctx, reason); err != nil {
		return err
	}
	return s.use(ctx, serviceTouchID, home, magicTouchID, use)
}

// RemoveSeed removes the Touch ID key of a home, if it is the one that mine says
// it is; one that is not there is no error.
func (s Store) RemoveSeed(ctx context.Context, home string, mine func(seed []byte) bool) error {
	other := false
	err := s.use(ctx, serviceTouchID, home, magicTouchID, func(seed []byte) error {
		other = !mine(seed)
		return nil
	})
	if errors.Is(err, ErrNoItem) || err == nil && other {
		return nil
	}
	if err != nil {
		return err
	}
	return s.remove(ctx, serviceTouchID, home)
}

func (s Store) add(ctx context.Context, service, account, magic string, key []byte) error {
	if len(key) != keySize {
		return fmt.Errorf("a key of %d bytes", len(key))
	}
	value := append([]byte(magic), key...)
	return within(ctx, func() error {
		defer clear(value)
		return s.Keychain.Add(service, account, service, value)
	})
}

func (s Store) use(ctx context.Context, service, account, magic string, use func(key []byte) error) error {
	read := make(chan []byte, 1)
	err := within(ctx, func() error {
		value, err := s.Keychain.Read(service, account)
		read <- value
		return err
	})
	if errors.Is(err, errNotAnswered) {
		go func() { clear(<-read) }() // it may come yet
		return err
	}
	value := <-read
	defer clear(value)
	if err != nil {
		return err
	}
	key, ok := bytes.CutPrefix(value, []byte(magic))
	if !ok || len(key) != keySize {
		return ErrItem
	}
	return use(key)
}

func (s Store) remove(ctx context.Context, service, account string) error {
	err := within(ctx, func() error { return s.Keychain.Delete(service, account) })
	if errors.Is(err, ErrNoItem) {
		return nil
	}
	return err
}

var errNotAnswered = errors.New("the keychain did not answer in time")

// within waits for a call that cannot be cancelled. A call that outlasts the
// patience, or ctx, goes on by itself.
func within(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotAnswered, ctx.Err())
	}
}
