package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/term"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// maxPassphrase bounds what is read from --passphrase-fd.
const maxPassphrase = 4096

// canProve reports whether a passphrase can be had without failing: a
// descriptor was named, or there is a terminal to ask on.
func (a *app) canProve() bool {
	return a.touchID || a.passphrase != nil || a.passFD >= 0 || (!a.json && term.IsTerminal(int(a.stderr.Fd())) && term.IsTerminal(int(a.stdin.Fd())))
}

// secretPhrase returns the passphrase, asking once.
func (a *app) secretPhrase(ctx context.Context, prompt string) ([]byte, error) {
	if a.passphrase != nil {
		return a.passphrase, nil
	}
	var err error
	if a.passFD >= 0 {
		a.passphrase, err = readPhrase(a.passFD)
	} else {
		a.passphrase, err = askHidden(ctx, prompt)
	}
	return a.passphrase, err
}

// readPhrase reads a passphrase from a descriptor.
func readPhrase(fd int) ([]byte, error) {
	line, err := readLine(fd)
	if err == nil && len(line) == 0 {
		err = wire.Errorf(wire.CodeProofRequired, "File descriptor %d gave no passphrase.", fd)
	}
	return line, err
}

// readLine reads one line from a descriptor and nothing behind it.
func readLine(fd int) ([]byte, error) {
	f, err := inherited(fd, false)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, maxPassphrase)
	var b [1]byte
	for len(line) < maxPassphrase {
		var n int
		n, err = f.Read(b[:])
		if n == 1 && b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		if n == 1 || err == io.EOF {
			break
		}
		if err != nil {
			return nil, usageError{fmt.Errorf("reading the passphrase from file descriptor %d: %v", fd, err)}
		}
	}
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// derive makes the keys of the slot that the phrase is for. A recovery code is
// known by its shape.
func (a *app) derive(phrase []byte, slots []wire.ChallengeSlot) (string, *vault.Keys, error) {
	name := "passphrase"
	if vault.IsRecoveryCode(phrase) {
		code, err := vault.NormalizeRecovery(phrase)
		if err != nil {
			return "", nil, wire.Errorf(wire.CodeProofInvalid, "The recovery code has a typing error: %v.", err)
		}
		name, phrase = "recovery", code
	}
	for _, s := range slots {
		if s.Name != name {
			continue
		}
		id := name + string(s.Salt)
		if k := a.keys[id]; k != nil {
			return name, k, nil
		}
		keys, err := vault.Derive(phrase, vault.KDF{Salt: s.Salt, Time: s.Time, MemoryKiB: s.MemoryKiB, Threads: s.Threads, Form: s.Form})
		if err != nil {
			return "", nil, fmt.Errorf("deriving keys: %w", err)
		}
		if a.keys == nil {
			a.keys = map[string]*vault.Keys{}
		}
		a.keys[id] = keys
		return name, keys, nil
	}
	return "", nil, wire.Errorf(wire.CodeProofInvalid, "This vault has no %s slot.", name)
}

// withKeys does what needs the person's keys and a nonce for a proof. A
// passphrase that was typed wrongly is asked for again.
func (a *app) withKeys(ctx context.Context, conn *client.Conn, do func(slot string, keys *vault.Keys, nonce string) error) error {
	for tries := 1; ; tries++ {
		phrase, err := a.secretPhrase(ctx, "Yett passphrase: ")
		if err != nil {
			return err
		}
		var c wire.Challenge
		if err := call(ctx, conn, wire.MethodVaultChallenge, wire.Empty{}, nil, &c); err != nil {
			return err
		}
		slot, keys, err := a.derive(phrase, c.Slots)
		if err == nil {
			err = do(slot, keys, c.Nonce)
		}
		mistyped := a.passFD < 0 && slot == vault.SlotPassphrase && errors.Is(err, &wire.Error{Code: wire.CodeProofInvalid})
		if !mistyped || tries == askedAgain {
			return err
		}
		a.wipe()
		a.note("That is not the passphrase.")
	}
}

// prove makes a request with the person's proof over its exact bytes.
func (a *app) prove(ctx context.Context, conn *client.Conn, method string, request, result any) error {
	raw, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	defer clear(raw)
	return a.withKeys(ctx, conn, func(_ string, keys *vault.Keys, nonce string) error {
		mac := vault.Proof(keys.Approval, approval.ProofMessage(method, raw, nonce))
		return callRaw(ctx, conn, method, raw, &wire.Proof{Nonce: nonce, MAC: mac}, result)
	})
}

// read makes a request that lists: with the person's proof where one can be
// had, so that everything is shown, else without.
func (a *app) read(ctx context.Context, method string, request, result any) error {
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.openReading(ctx, conn); err != nil {
		return err
	}
	if err := call(ctx, conn, method, request, nil, result); err != nil {
		return err
	}
	a.noteLocked()
	return nil
}

// readList lists what a method without parameters lists. The passphrase is asked
// for only where something would stay hidden without it; one that was given is
// checked.
func readList[T any](ctx context.Context, a *app, method string) (l wire.List[T], err error) {
	conn, err := a.dial(ctx)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	if err := call(ctx, conn, method, wire.Empty{}, nil, &l); err != nil {
		return l, err
	}
	if l.Hidden > 0 || a.passFD >= 0 {
		if err := a.openReading(ctx, conn); err != nil {
			return l, err
		}
		l = wire.List[T]{}
		if err := call(ctx, conn, method, wire.Empty{}, nil, &l); err != nil {
			return l, err
		}
	}
	if l.Items == nil {
		l.Items = []T{}
	}
	a.noteLocked()
	return l, nil
}

func (a *app) noteLocked() {
	if a.locked {
		a.note("The broker is locked: nothing can be read before yett unlock.")
	}
}

// openReading opens reading by proof where one can be had. A locked broker has
// nothing to read, and a.locked says then that this is why.
func (a *app) openReading(ctx context.Context, conn *client.Conn) error {
	var st wire.Status
	if err := call(ctx, conn, wire.MethodBrokerStatus, wire.Empty{}, nil, &st); err != nil {
		return err
	}
	a.locked = st.State == "locked"
	if a.locked || !a.canProve() {
		return nil
	}
	if a.touchID {
		return a.readByTouch(ctx, conn)
	}
	return a.prove(ctx, conn, wire.MethodActivityRead, wire.Empty{}, nil)
}
