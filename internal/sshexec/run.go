package sshexec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
)

// errRefusedCommand is the host's own word that nothing was started.
var errRefusedCommand = errors.New("the host refused to run a command")

// run sends the command and stays until its end is known, the time is up, the
// link falls silent or ctx ends. The last three close the connection, and with
// it ends every goroutine below.
func (l *link) run(ctx context.Context, ch ssh.Channel, reqs <-chan *ssh.Request, t Target, r action.SSH) (*Result, error) {
	limit := t.RunTimeout
	if r.Timeout > 0 {
		limit = r.Timeout
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the command did not end within %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	ctx, abandon := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()

	exits := make(chan Exit, 1)
	wg.Go(func() { watchExit(reqs, exits) })
	wg.Go(func() { l.watchSilence(ctx, t.Keepalive, abandon) })
	out := drainBoth(ch, t.MaxOutput)
	wg.Go(func() { <-out.drained })

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
	wg.Go(func() {
		// A command need not read its input; that is not a failure of ours.
		_, failed := ch.Write(r.Stdin)
		if ch.CloseWrite() == nil && failed == nil {
			t.Sent()
		}
	})
	return l.await(ctx, exits, out)
}

// await makes the result once the host has told the end of the command, or
// can tell it no more.
func (l *link) await(ctx context.Context, exits <-chan Exit, out *output) (*Result, error) {
	exit, known := <-exits
	abandoned := ctx.Err() != nil
	if known {
		out.settle(ctx)
	}
	leftOpen := known && !out.ended()
	l.Close()
	<-out.drained
	res := &Result{
		Exit:   exit,
		Stdout: out.stdout.kept, StdoutTruncated: out.stdout.truncated,
		Stderr: out.stderr.kept, StderrTruncated: out.stderr.truncated,
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
