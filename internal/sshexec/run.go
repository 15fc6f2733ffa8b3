package sshexec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
)

// errRefusedCommand is the host's own word that nothing was started.
var errRefusedCommand = errors.New("the host refused to run a command")

// errRefusedTerminal likewise: without the terminal the command was not sent.
var errRefusedTerminal = errors.New("the host gives no terminal")

// run sends the command and stays until its end is known, the time is up, the
// link falls silent or ctx ends. The last three close the connection, and with
// it ends every goroutine below. clean tells that the host has closed the
// channel of a command whose end it told, so that nothing of it is left on the
// connection.
func (k *kept) run(ctx context.Context, ch ssh.Channel, reqs <-chan *ssh.Request, t Target, r action.SSH) (res *Result, clean bool, err error) {
	limit := t.RunTimeout
	if r.Timeout > 0 {
		limit = r.Timeout
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		if !clean {
			k.Close()
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the command did not end within %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	ctx, release := k.hold(ctx, t.Quiet)
	defer release()

	exits, closed := make(chan Exit, 1), make(chan struct{})
	wg.Go(func() {
		defer close(closed)
		watchExit(reqs, exits)
	})
	out := drainBoth(ch, t.MaxOutput, t.Session)
	wg.Go(func() { <-out.drained })

	input, err := k.start(ctx, ch, t, r)
	if err != nil {
		return nil, false, err
	}
	wg.Go(func() {
		// A command need not read its input; that is not a failure of ours.
		_, failed := ch.Write(input)
		if ch.CloseWrite() == nil && failed == nil {
			t.Sent()
		}
	})
	res, err = k.await(ctx, exits, out)
	return res, err == nil && !res.LeftOpen && isClosed(ctx, closed), err
}

// hold makes a context that ends also when the link is given up as dead, and
// whose end closes the connection. After quiet not a byte leaves.
func (k *kept) hold(ctx, quiet context.Context) (context.Context, func()) {
	ctx, abandon := context.WithCancelCause(ctx)
	stops := []func() bool{
		context.AfterFunc(k.silent, func() { abandon(context.Cause(k.silent)) }),
		context.AfterFunc(ctx, func() { k.Close() }),
		context.AfterFunc(quiet, func() { k.outer.muted.Store(true) }),
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// start sends everything up to the command, and returns what its standard input
// is to get.
func (k *kept) start(ctx context.Context, ch ssh.Channel, t Target, r action.SSH) (input []byte, err error) {
	input = r.Stdin
	for _, v := range r.Env {
		switch ok, err := ch.SendRequest("env", true, ssh.Marshal(v)); {
		case err != nil:
			return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, fmt.Errorf("setting %s: %w", v.Name, err))}
		case !ok: // without it the command may do something else
			return nil, &Error{Code: CodeUpstream, Cause: fmt.Errorf("the host takes no variable %s of the environment", v.Name)}
		}
	}
	if r.PTY {
		switch ok, err := ch.SendRequest("pty-req", true, terminal()); {
		case err != nil:
			return nil, &Error{Code: CodeUpstream, Cause: whyEnded(ctx, fmt.Errorf("asking for a terminal: %w", err))}
		case !ok:
			return nil, &Error{Code: CodeUpstream, Cause: errRefusedTerminal}
		}
		input = typed(r.Stdin)
	}
	if ctx.Err() != nil {
		return nil, &Error{Code: CodeUpstream, Cause: context.Cause(ctx)}
	}
	if err := t.Begin(); err != nil {
		return nil, &Error{Code: CodeUpstream, Cause: err}
	}
	// From here on the command may have run, whatever becomes of the answer.
	started, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{r.Command}))
	switch {
	case err != nil:
		err = whyEnded(ctx, fmt.Errorf("sending the command: %w", err))
		return nil, &Error{Code: CodeUpstream, MaybeSent: true, Cause: err}
	case !started:
		return nil, &Error{Code: CodeUpstream, Cause: errRefusedCommand}
	}
	return input, nil
}

// await makes the result once the host has told the end of the command, or
// can tell it no more.
func (k *kept) await(ctx context.Context, exits <-chan Exit, out *output) (*Result, error) {
	exit, known := <-exits
	abandoned := ctx.Err() != nil
	if known {
		out.settle(ctx)
	}
	leftOpen := known && !out.ended()
	if !known || leftOpen {
		k.Close()
	}
	<-out.drained
	res := &Result{
		Exit:   exit,
		Stdout: out.stdout.kept, StdoutTruncated: out.stdout.truncated(), StdoutTotal: out.stdout.total, StdoutTail: out.stdout.tail.end(),
		Stderr: out.stderr.kept, StderrTruncated: out.stderr.truncated(), StderrTotal: out.stderr.total, StderrTail: out.stderr.tail.end(),
		LeftOpen: leftOpen,
	}
	if known {
		return res, nil
	}
	res.Exit = Exit{Unknown: true}
	if abandoned {
		return res, &Error{Code: CodeUpstream, MaybeSent: true, Cause: context.Cause(ctx)}
	}
	return res, nil
}

// isClosed waits a moment for the host to close the channel, which it does
// right after the streams have ended.
func isClosed(ctx context.Context, closed <-chan struct{}) bool {
	moment := time.NewTimer(100 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-closed:
		return ctx.Err() == nil
	case <-moment.C:
	case <-ctx.Done():
	}
	return false
}

// watchExit sends the first word about the end of the command, and closes
// exits with the channel. Everything else that the host asks for is refused.
func watchExit(reqs <-chan *ssh.Request, exits chan<- Exit) {
	defer close(exits)
	told := false
	for req := range reqs {
		if exit, ok := exitOf(req); ok && !told {
			exits <- exit
			told = true
		}
		if req.WantReply {
			req.Reply(false, nil)
		}
	}
}

// exitOf reads an exit-status or exit-signal request. A malformed one tells
// that the command ended, not how.
func exitOf(req *ssh.Request) (Exit, bool) {
	switch req.Type {
	case "exit-status":
		if len(req.Payload) != 4 {
			return Exit{Unknown: true}, true
		}
		status := int(binary.BigEndian.Uint32(req.Payload))
		return Exit{Status: &status}, true
	case "exit-signal":
		var m struct {
			Signal     string
			CoreDumped bool
			Message    string
			Language   string
		}
		if err := ssh.Unmarshal(req.Payload, &m); err != nil || !signalName(m.Signal) {
			return Exit{Unknown: true}, true
		}
		return Exit{Signal: m.Signal}, true
	}
	return Exit{}, false
}

// signalName reports whether s is shaped as RFC 4254 section 6.10 names
// signals: TERM, or sig-name@domain.
func signalName(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@.-_"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}
