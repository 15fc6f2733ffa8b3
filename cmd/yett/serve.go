package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/httpexec"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/suspend"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// lockAfter is how long the vault stays open unused where nobody says else:
// longer than a person is away from a running agent, shorter than a night.
const lockAfter = time.Hour

func newServe(a *app) *cobra.Command {
	unused, onSuspend, onScreen := lockAfter, true, false
	var page consoleFlags
	var kept keptBodies
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the resident broker",
		Long: "Runs the broker until SIGTERM or yett stop. It starts locked and never asks for\n" +
			"anything; unlock it with yett unlock. Its only network listener is the console, on\n" +
			"the loopback addresses; with --home there is none unless --console is given.\n\n" +
			"When no action ran and no proof was given for the time of --lock-after, it\n" +
			"locks by itself and pauses the sessions; sleep counts as time. It does the\n" +
			"same before the machine sleeps. yett unlock resumes them.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if unused < 0 {
				return usageError{errors.New("--lock-after is a time such as 30m or 8h, or 0 for never")}
			}
			if onScreen && !suspend.CanNoticeScreen() {
				return usageError{errors.New("--lock-on-screen-lock is for macOS: a locked screen is not noticed on this system")}
			}
			if err := kept.check(); err != nil {
				return err
			}
			if err := page.check(c); err != nil {
				return err
			}
			return a.serve(c.Context(), unused, lockOn{onSuspend, onScreen}, kept, page)
		},
	}
	c.Flags().DurationVar(&unused, "lock-after", lockAfter, "lock after this time without use; 0 is never")
	c.Flags().BoolVar(&onSuspend, "lock-on-suspend", true, "lock before the machine sleeps")
	c.Flags().BoolVar(&onScreen, "lock-on-screen-lock", false, "lock when the screen is locked (macOS)")
	kept.add(c)
	page.add(c)
	return c
}

// lockOn is what locks Yett beside a command and time.
type lockOn struct{ suspend, screen bool }

func (a *app) serve(ctx context.Context, unused time.Duration, lock lockOn, keep keptBodies, page consoleFlags) error {
	loc, err := a.location()
	if err != nil {
		return err
	}
	if err := peer.Floor(); err != nil {
		return &wire.Error{Code: wire.CodeInternal, Message: fmt.Sprintf("This system cannot serve: %v.", err),
			NextStep: "Use Linux 6.5 or later."}
	}
	log := slog.New(slog.NewTextHandler(a.stderr, nil))
	started := takeStart()
	becomeResident()
	v, err := vault.Load(loc.Home)
	if err != nil {
		return vaultUnusable(loc, err)
	}
	listener, err := untilLetGo(ctx, log, func() (*endpoint.Listener, error) { return started.listen(loc) })
	started.close()
	if err != nil {
		return cannotListen(loc, err)
	}
	defer listener.Close()
	boot, err := peer.BootID()
	if err != nil {
		return err
	}
	l, v, err := openLedger(ctx, log, loc, boot, v)
	if err != nil {
		return err
	}
	defer l.Close()
	kept, err := bodies.Open(loc.Home, keep.options())
	if err != nil {
		return bodiesUnusable(loc, err)
	}
	defer kept.Close()
	if unknown, denied := l.Recovered(); unknown+denied > 0 {
		log.Warn("the last broker ended in the middle of work", "indeterminate", unknown, "denied", denied)
	}
	for _, word := range vault.Harden() {
		log.Warn("hardening", "incomplete", word)
	}
	own := func() []int { return page.ports(loc) }
	b, err := broker.New(broker.Config{Location: loc, Version: version, Vault: v, Ledger: l,
		HTTP: httpexec.New(httpexec.Options{OwnPorts: own}), SSH: sshexec.New(sshexec.Options{OwnPorts: own}), Bodies: kept,
		Clock: session.SystemClock{}, Log: log, ShimFile: installedShim, OwnFile: installedYett, LockAfter: unused, RequireApprover: page.require})
	if err != nil {
		return err
	}
	defer watchSuspend(ctx, log, b, lock)()
	defer a.serveConsole(log, loc, b, page)()
	log.Info("serving, locked", "version", version, "endpoint", loc.Socket, "home", loc.Home)
	w := watchEndpoint(ctx, log, started.manager, listener, b)
	err = b.Serve(w.ctx, listener, func() error { w.end(); return listener.Close() })
	if lost := w.lost(); lost != nil {
		return cannotBeReached(loc, lost)
	}
	log.Info("stopped")
	return err
}

// watchSuspend locks before the machine sleeps and when the screen is locked,
// until the returned function is called. Neither start nor stop waits for the
// system's answers.
func watchSuspend(ctx context.Context, log *slog.Logger, b *broker.Broker, lock lockOn) (stop func()) {
	if lock == (lockOn{}) {
		return func() {}
	}
	o := suspend.Options{Bus: suspend.SystemBus, Log: log}
	if lock.suspend {
		o.Sleep = func() { b.Pause(broker.PausedSuspend) }
	}
	if lock.screen {
		o.Screen = func() { b.Pause(broker.PausedScreen) }
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		suspend.Watch(ctx, o)
	}()
	return func() { cancel(); <-ended }
}

func installedYett() (device, inode uint64, err error) {
	_, device, inode, err = endpoint.Installed("yett")
	return device, inode, err
}

func installedShim() (device, inode uint64, err error) {
	_, device, inode, err = endpoint.Installed("yett-mcp")
	return device, inode, err
}

// becomeResident makes this process one that stays.
func becomeResident() {
	scrubEnvironment()
	collectSeldom()
	signal.Ignore(syscall.SIGXFSZ) // a limit on file sizes shows as a failed write, not as an end
	syscall.Umask(0o077)
	os.Chdir("/") // a directory that somebody wants to unmount or remove is not held
}

// collectSeldom lets garbage grow to three times of what lives, which is some ten
// megabytes, before it is collected: each action makes 60 KB of it. A broker that
// holds much collects as usual.
func collectSeldom() {
	debug.SetGCPercent(300)
	debug.SetMemoryLimit(256 << 20)
}

// scrubEnvironment keeps nothing of the environment: no proxy, no credential
// of the login, nothing that a library might obey.
func scrubEnvironment() {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name != "TZ" && name != "LANG" {
			os.Unsetenv(name)
		}
	}
}

func vaultUnusable(loc endpoint.Location, err error) error {
	e := wire.Errorf(wire.CodeInternal, "The vault in %s cannot be used: %v.", loc.Home, err)
	switch {
	case errors.Is(err, vault.ErrNoVault):
		e.Code, e.Message = wire.CodeBadRequest, fmt.Sprintf("There is no vault in %s.", loc.Home)
		e.NextStep = "Make one: yett init."
	case errors.Is(err, vault.ErrDamaged):
		e.NextStep = "The file was left as it is. Restore a backup, or look at the previous generation beside it (.prev)."
	default:
		e.NextStep = "Look at what lies there, whose it is and who may read it; or name another directory with --home. It must be your own, with mode 0700."
	}
	return e
}

func cannotListen(loc endpoint.Location, err error) error {
	e := wire.Errorf(wire.CodeInternal, "The broker cannot listen at %s: %v.", loc.Socket, err)
	var used *endpoint.InUseError
	var unsafe *endpoint.UnsafeError
	var passed *endpoint.InheritedError
	switch {
	case errors.As(err, &passed):
		e.NextStep = "Correct the service manager's socket unit: one listener named " + endpoint.InheritedName + " at " + loc.Socket + ", mode 0600, in a directory of mode 0700."
	case errors.As(err, &used) && used.Answering:
		e.Code, e.Message = wire.CodeBadRequest, fmt.Sprintf("A broker is running already (%s).", used.Holder)
		e.NextStep = "Use it, or stop it first: yett stop."
	case errors.As(err, &used):
		e.Message = fmt.Sprintf("A broker is running but does not answer (%s).", used.Holder)
		e.NextStep = "Look at its log; end that process if it stays so."
	case errors.As(err, &unsafe):
		e.NextStep = "Find out who put it there; Yett removes nothing that it did not make."
	}
	return e
}

func cannotBeReached(loc endpoint.Location, err error) error {
	return wire.Errorf(wire.CodeInternal, "The broker ended itself, since nobody can reach it any more, not even to lock it: %v. Every session has ended.", err).
		Then("A logout takes the runtime directory away. Start it again: yett up.")
}

func ledgerUnusable(err error) error {
	e := wire.Errorf(wire.CodeInternal, "The ledger cannot be used: %v.", err)
	e.NextStep = "Repair the file's permissions or make room on the disk; nothing is done without a ledger."
	if errors.Is(err, ledger.ErrInUse) {
		e.NextStep = "Another broker has it: use that one, or stop it first."
	}
	return e
}

func bodiesUnusable(loc endpoint.Location, err error) error {
	return wire.Errorf(wire.CodeInternal, "Bodies of answers cannot be kept in %s: %v.", filepath.Join(loc.Home, bodies.DirName), err).
		Then("It is a directory of this account with mode 0700; correct that, or move away what is in its place.")
}
