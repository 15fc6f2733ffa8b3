package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	// startTime is how long a broker may take until it answers: it replays its
	// journal before.
	startTime = time.Minute
	// startAgain is how often it is asked meanwhile.
	startAgain = 10 * time.Millisecond
	// tryAgain is how long a start waits for a broker that is ending.
	tryAgain = 100 * time.Millisecond

	brokerLog    = "broker.log"
	maxBrokerLog = 1 << 20 // then a new one is begun, and the last is kept
)

// startBroker starts a broker. One that was told to end a moment ago may still
// have the ledger: then it is tried again until that one has let go.
func (a *app) startBroker(ctx context.Context, loc endpoint.Location, done *upDone) (*client.Conn, error) {
	for limit := time.Now().Add(endTime); ; {
		conn, err := a.startOnce(ctx, loc, done)
		var had *ledgerHadError
		if !errors.As(err, &had) {
			return conn, err
		}
		if time.Now().After(limit) {
			return nil, cannotStart(loc, had)
		}
		select {
		case <-time.After(tryAgain):
		case <-ctx.Done():
			return nil, errInterrupted
		}
	}
}

// ledgerHadError is the end of a broker that found the ledger in use.
type ledgerHadError struct{ words error }

func (e *ledgerHadError) Error() string { return e.words.Error() }

// startOnce starts yett serve apart from this command and waits until it
// answers a hello, or has ended. Nobody who waits for the end of this command's
// output waits for the broker: it has its log and /dev/null as its standard
// streams, and belongs to no terminal. What else it inherits it closes by itself.
func (a *app) startOnce(ctx context.Context, loc endpoint.Location, done *upDone) (*client.Conn, error) {
	program, _, _, err := endpoint.Installed("yett")
	if err != nil {
		return nil, fmt.Errorf("finding the installed yett: %w", err)
	}
	log, err := openBrokerLog(loc.Home)
	if err != nil {
		return nil, cannotStart(loc, err)
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, cannotStart(loc, err)
	}
	c := exec.Command(program, "serve")
	if loc.Test {
		c.Args = append(c.Args, "--home", loc.Home)
	}
	c.Dir, c.Env, c.Stdout, c.Stderr = "/", keptEnvironment(), log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return nil, cannotStart(loc, err)
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	conn, err := a.awaitBroker(ctx, loc, ended)
	switch {
	case err == nil:
		done.Broker = "started"
		return conn, nil
	case errors.Is(err, errBrokerEnded):
		words := lastWords(log.Name(), before)
		if strings.Contains(words.Error(), ledger.ErrInUse.Error()) {
			return nil, &ledgerHadError{words}
		}
		return nil, cannotStart(loc, words)
	}
	c.Process.Signal(syscall.SIGTERM) // it was ours alone so far
	return nil, err
}

var errBrokerEnded = errors.New("the broker ended")

// awaitBroker returns when a broker answers. One that ended may have met
// another that was started at the same moment: that one is as good.
func (a *app) awaitBroker(ctx context.Context, loc endpoint.Location, ended <-chan struct{}) (*client.Conn, error) {
	limit := time.NewTimer(startTime)
	defer limit.Stop()
	again := time.NewTicker(startAgain)
	defer again.Stop()
	for over := false; ; {
		conn, err := client.DialLocation(ctx, loc, client.Options{Program: "yett", Version: version, Role: wire.RoleCLI})
		var u *endpoint.UnavailableError
		if err == nil || !errors.As(err, &u) || u.Cause == endpoint.Imposter || u.Cause == endpoint.Unsafe {
			return conn, asUnavailable(loc, err)
		}
		if over {
			return nil, errBrokerEnded
		}
		select {
		case <-again.C:
		case <-ended:
			over = true
		case <-ctx.Done():
			return nil, errInterrupted
		case <-limit.C:
			return nil, unavailable(loc, err)
		}
	}
}

func asUnavailable(loc endpoint.Location, err error) error {
	if err == nil {
		return nil
	}
	return unavailable(loc, err)
}

// openBrokerLog opens the log of brokers that are started here. It lies in the
// private data directory.
func openBrokerLog(home string) (*os.File, error) {
	path := filepath.Join(home, brokerLog)
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() > maxBrokerLog {
		if err := os.Rename(path, path+".prev"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
}

// keptEnvironment is what the broker keeps of its environment anyway.
func keptEnvironment() []string {
	kept := []string{}
	for _, name := range []string{"TZ", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			kept = append(kept, name+"="+v)
		}
	}
	return kept
}

// maxLastWords is how much of the end of a log is read for a message.
const maxLastWords = 4096

// lastWords is what a broker wrote before it ended: its own error where it
// printed one.
func lastWords(path string, from int64) error {
	f, err := os.Open(path)
	if err != nil {
		return errBrokerEnded
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, from, maxBrokerLog), maxLastWords))
	words := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range words {
		if said, ok := strings.CutPrefix(line, "yett: "); ok {
			return errors.New(strings.TrimSuffix(said, "."))
		}
	}
	if err != nil || words[len(words)-1] == "" {
		return errBrokerEnded
	}
	return errors.New(words[len(words)-1])
}

func cannotStart(loc endpoint.Location, err error) error {
	return wire.Errorf(wire.CodeUnavailable, "The broker could not be started: %v.", err).
		Then("Look at " + filepath.Join(loc.Home, brokerLog) + ", or run it where you see it: yett serve.")
}
