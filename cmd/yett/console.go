package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/console"
	"github.com/yett-broker/yett/internal/doctor"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/notify"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/review"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

func newConsole(a *app) *cobra.Command {
	onlyPrint := false
	c := &cobra.Command{
		Use:   "console",
		Short: "Open the page on which you decide what agents ask for",
		Long: "Opens the console in your browser, or prints its address where there is no desktop.\n" +
			"The address gives nobody anything: the page asks for your proof. That the broker\n" +
			"serves it is asked over its socket first, so that no other program's page is opened.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.console(c.Context(), onlyPrint) },
	}
	c.Flags().BoolVar(&onlyPrint, "print", false, "print the address and open nothing")
	return c
}

func (a *app) console(ctx context.Context, onlyPrint bool) error {
	var st wire.Status
	if err := a.manage(ctx, wire.MethodBrokerStatus, wire.Empty{}, &st); err != nil {
		return err
	}
	if st.Console == "" {
		return wire.Errorf(wire.CodeUnavailable, "The broker has no console: %s.", st.ConsoleProblem).
			Then("yett pending and yett approve do the same in a terminal. Start the broker without --no-console to have it.")
	}
	opened := !onlyPrint && !a.json && openBrowser(ctx, st.Console)
	if a.json {
		return printJSON(a.stdout, map[string]any{"url": st.Console})
	}
	fmt.Fprintln(a.stdout, st.Console)
	if !opened && !onlyPrint {
		a.note("There is no desktop to open it on; open the address yourself, in a browser on this computer.")
	}
	return nil
}

// openTime is how long the desktop may take to take an address.
const openTime = 5 * time.Second

// openBrowser hands an address to the desktop and reports whether it took it.
func openBrowser(ctx context.Context, url string) bool {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	} else if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	return exec.CommandContext(ctx, program, url).Run() == nil
}

// consoleFlags say whether the broker serves a console, and where.
type consoleFlags struct {
	port int
	on   bool // asked for
	off  bool

	require bool // refuse what nobody would notice
	quiet   bool // tell the desktop nothing
}

func (f *consoleFlags) add(c *cobra.Command) {
	c.Flags().IntVar(&f.port, "console", console.Port, "serve the console, on this `PORT` of the loopback addresses")
	c.Flags().Lookup("console").NoOptDefVal = strconv.Itoa(console.Port)
	c.Flags().BoolVar(&f.off, "no-console", false, "serve no console")
	c.Flags().BoolVar(&f.require, "require-approver", false, "refuse what would need a card while nobody would notice it")
	c.Flags().BoolVar(&f.quiet, "no-notify", false, "do not tell the desktop when a card comes")
}

func (f *consoleFlags) check(c *cobra.Command) error {
	f.on = c.Flags().Changed("console")
	switch {
	case f.on && f.off:
		return usageError{errors.New("--console and --no-console exclude each other")}
	case f.port < 1 || f.port > 65535:
		return usageError{errors.New("--console=PORT is a number from 1 to 65535")}
	}
	return nil
}

// wanted reports whether there is to be a console: in a test home only when it
// is asked for.
func (f consoleFlags) wanted(loc endpoint.Location) bool { return !f.off && (f.on || !loc.Test) }

// ports are those that no executor dials.
func (f consoleFlags) ports(loc endpoint.Location) []int {
	if !f.wanted(loc) {
		return nil
	}
	return []int{f.port}
}

// serveConsole serves the console beside the broker, until the returned function
// is called. The broker goes on without one where the port cannot be had.
func (a *app) serveConsole(log *slog.Logger, loc endpoint.Location, b *broker.Broker, f consoleFlags) (stop func()) {
	if !f.wanted(loc) {
		b.ConsoleOff("it was started without one")
		return func() {}
	}
	cfg := console.Config{Broker: consoleSeam{b}, Log: log, Port: f.port,
		Doctor: func(ctx context.Context) []console.Check { return a.consoleChecks(ctx, loc, b) },
		Review: func(ctx context.Context, ask console.Ask) (console.Review, error) {
			return consoleReview(ctx, loc, b, ask)
		}}
	if loc.Test {
		cfg.TestHome = loc.Home
	}
	c, err := console.Listen(cfg)
	if err != nil {
		why := err.Error()
		var used *console.InUseError
		if errors.As(err, &used) {
			why += ", by " + holderOf(used.Address)
		}
		log.Warn("serving without a console", "cause", why)
		b.ConsoleOff(why)
		return func() {}
	}
	b.ConsoleAt(f.port)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Serve(); err != nil {
			log.Error("the console has ended", "error", err)
			b.ConsoleOff(err.Error())
		}
	}()
	quiet := notifyDesktop(log, loc, b, f)
	return func() { quiet(); c.Close(); <-ended }
}

// notifyDesktop tells the desktop what waits, until the returned function is
// called. A test home tells it nothing.
func notifyDesktop(log *slog.Logger, loc endpoint.Location, b *broker.Broker, f consoleFlags) (stop func()) {
	if loc.Test || f.quiet {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	waiting := func() notify.Waiting {
		n, first, names := b.FirstWaiting()
		w := notify.Waiting{Count: n, ID: first.ApprovalID, Tag: first.Tag, What: approval.Escape(strings.Join(names, ", "), 120)}
		if first.ConsoleURL != nil {
			w.URL = *first.ConsoleURL
		}
		return w
	}
	go func() {
		defer close(ended)
		notify.Watch(ctx, notify.SessionBus(), log, notify.Source{Changed: b.Changed, Waiting: waiting, Reached: b.Noticing})
	}()
	return func() { cancel(); <-ended }
}

// holderOf names who listens at an address, as far as the kernel tells.
func holderOf(at netip.AddrPort) string {
	for _, local := range []netip.AddrPort{at, netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())} {
		s, err := peer.TCPSocket(local, netip.AddrPort{})
		if err != nil {
			continue
		}
		holders := s.Holders()
		name := fmt.Sprintf("a process of user %d", s.UID)
		if len(holders) > 0 {
			name = fmt.Sprintf("process %d, %s", holders[0].PID(), screen.Program(holders[0].Evidence().Kernel.ExePath))
		}
		for _, p := range holders {
			p.Close()
		}
		return name
	}
	return "a process that cannot be named"
}

// consoleSeam gives the console the broker as it wants it.
type consoleSeam struct{ *broker.Broker }

func (s consoleSeam) OpenPage(local, remote netip.AddrPort, browser string) (console.Page, error) {
	p, err := s.Broker.OpenPage(local, remote, browser)
	if err != nil {
		return nil, err
	}
	return consolePage{p}, nil
}

type consolePage struct{ *broker.Page }

func (p consolePage) Derive(phrase []byte) (console.Keys, *wire.Error) {
	keys, fail := p.Page.Derive(phrase)
	if fail != nil {
		return nil, fail
	}
	return keys, nil
}

func (a *app) consoleChecks(ctx context.Context, loc endpoint.Location, b *broker.Broker) []console.Check {
	report := doctor.Examine(ctx, ownSubject(loc, b))
	checks := make([]console.Check, len(report.Findings))
	for i, f := range report.Findings {
		checks[i] = console.Check{Name: f.Check, Level: [...]string{"ok", "note", "problem"}[f.Level], Found: f.Found, NextStep: a.advice(f.Cause)}
	}
	return checks
}

// ownSubject is what the broker looks at when it looks at itself.
func ownSubject(loc endpoint.Location, b *broker.Broker) doctor.Subject {
	st := b.Status()
	return doctor.Subject{Location: loc, Version: version, Accounts: accountHomes(), Clients: clientFiles(), Project: "/", Broker: &st}
}

// consoleReview is the page of yett review, and its matrix, for somebody who may
// read.
func consoleReview(ctx context.Context, loc endpoint.Location, b *broker.Broker, ask console.Ask) (console.Review, error) {
	r := newFacts()
	r.Status, r.Policy = b.Status(), b.Policy()
	var shown wire.AccessListResult
	for method, into := range map[string]any{wire.MethodAccessShow: &shown, wire.MethodSessionList: &r.Sessions, wire.MethodSecretList: &r.Secrets, wire.MethodPasskeyList: &r.Passkeys} {
		if err := ask(method, wire.Empty{}, into); err != nil {
			return console.Review{}, err
		}
	}
	r.Access = shown.Capabilities
	list := func(request wire.ActivityList, into any) error { return ask(wire.MethodActivityList, request, into) }
	if err := gatherRows(ctx, r, list, loc.Home); err != nil {
		return console.Review{}, err
	}
	r.Report = doctor.Examine(ctx, ownSubject(loc, b))
	var v console.Review
	for _, t := range r.Page() {
		topic := console.Topic{Name: t.Topic}
		for _, f := range t.Facts {
			topic.Facts = append(topic.Facts, console.Fact{Text: f.Fact, From: f.From})
		}
		v.Topics = append(v.Topics, topic)
	}
	v.Columns, v.Rows = review.NewMatrix(r).Table()
	return v, nil
}
