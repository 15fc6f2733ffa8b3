package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/loginkeys"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// app is what the subcommands share: the standard streams, the global flags,
// and a passphrase for as long as the command runs.
type app struct {
	stdin, stderr *os.File
	stdout        *output

	home     string
	commands []string // the names of those that take --home
	json     bool
	passFD   int

	login   func() (loginkeys.Store, error) // the login keychain of this system
	touchID bool                            // proofs are by the finger

	locked bool // the broker was found locked when something was to be read

	passphrase []byte
	keys       map[string]*vault.Keys // by slot and salt
}

// wipe forgets the passphrase and what was derived from it.
func (a *app) wipe() {
	clear(a.passphrase)
	a.passphrase = nil
	a.forgetKeys()
}

// location is where the broker of this command lives: the account's own, or
// the directory of --home. Nothing in the environment has a say.
func (a *app) location() (endpoint.Location, error) {
	loc, err := endpoint.Default()
	if a.home != "" {
		loc, err = endpoint.InHome(a.home)
	}
	if err == nil {
		err = loc.Check()
	}
	if err != nil {
		return loc, wire.Errorf(wire.CodeBadRequest, "The home cannot be used: %v.", err).
			Then("Give a shorter or safer directory with --home, or repair the account's own.")
	}
	return loc, nil
}

// dial connects to the broker as the command line.
func (a *app) dial(ctx context.Context) (*client.Conn, error) {
	loc, err := a.location()
	if err != nil {
		return nil, err
	}
	conn, err := client.DialLocation(ctx, loc, client.Options{Program: "yett", Version: version, Role: wire.RoleCLI})
	if err != nil {
		return nil, unavailable(loc, err)
	}
	return conn, nil
}

// unavailable says why there is no broker to talk to, and what to do.
func unavailable(loc endpoint.Location, err error) error {
	var fail *wire.Error
	if errors.As(err, &fail) {
		return fail
	}
	e := wire.NewError(wire.CodeUnavailable)
	var u *endpoint.UnavailableError
	if !errors.As(err, &u) {
		e.Message = fmt.Sprintf("The broker did not answer: %v.", err)
		return e
	}
	up := "yett up"
	switch u.Cause {
	case endpoint.NotRunning:
		e.Message, e.NextStep = "The broker is not running.", "Start it: "+up+"."
	case endpoint.Stale:
		e.Message, e.NextStep = "The broker has ended and left its socket.", "Start it again: "+up+"."
	case endpoint.Starting:
		e.Message, e.NextStep = "The service manager is starting the broker.", "Try again in a moment; if it stays so, look at the service's log."
	case endpoint.Forbidden:
		e.Message = fmt.Sprintf("This process may not reach the broker's socket (%v).", u.Err)
		e.NextStep = "Run it outside the sandbox, or allow the socket there: " + loc.Socket + "."
	case endpoint.NotAnswering:
		e.Message, e.NextStep = "The broker is there but does not answer.", "Look at its log; end it and start it again: "+up+"."
	case endpoint.Unsafe:
		e.Message = fmt.Sprintf("The way to the broker's socket is not safe to use: %v; nothing was sent.", u.Err)
		e.NextStep = "Find out who made it so, and put it right; Yett removes nothing that it did not make."
	default:
		e.Message = fmt.Sprintf("What listens at %s was not proven to be your broker (%v); nothing was sent.", loc.Socket, u.Err)
		e.NextStep = "Find out who listens there (ss -xlp) before you go on."
	}
	return e
}

// manage makes a request that needs no proof.
func (a *app) manage(ctx context.Context, method string, request, result any) error {
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return call(ctx, conn, method, request, nil, result)
}

// manageProven makes a request that needs the person's proof, and nothing else.
func (a *app) manageProven(ctx context.Context, method string, request, result any) error {
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return a.prove(ctx, conn, method, request, result)
}

// call sends a management request.
func call(ctx context.Context, conn *client.Conn, method string, request any, proof *wire.Proof, result any) error {
	raw, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	return callRaw(ctx, conn, method, raw, proof, result)
}

func callRaw(ctx context.Context, conn *client.Conn, method string, raw []byte, proof *wire.Proof, result any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := conn.Call(ctx, method, wire.Managed{Request: raw, Proof: proof}, result)
	var fail *wire.Error
	if err == nil || errors.As(err, &fail) {
		return err
	}
	e := wire.NewError(wire.CodeUnavailable)
	switch {
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		e.Message, e.NextStep = "The broker did not answer in time.", "After wrong passphrases it waits; look at yett status and at its log, then try again."
	default:
		e.Message = fmt.Sprintf("The broker went away: %v.", err)
	}
	return e
}
