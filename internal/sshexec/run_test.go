package sshexec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

func show(e sshexec.Exit) string {
	b, _ := json.Marshal(e)
	return string(b)
}

func TestCommandGetsItsInputAndBothStreamsComeApart(t *testing.T) {
	s := yetttest.StartSSHD(t)
	in := bytes.Repeat([]byte("a line of input\n"), 1<<14)
	res, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s),
		action.SSH{Command: "cat; echo from stderr >&2", Stdin: in})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 0)
	if !bytes.Equal(res.Stdout, in) || !strings.HasSuffix(string(res.Stderr), "from stderr\n") { // sshd may add that there is no home directory
		t.Errorf("stdout has %d bytes, want %d; stderr %q", len(res.Stdout), len(in), res.Stderr)
	}
	if res.StdoutTruncated || res.StderrTruncated || res.LeftOpen {
		t.Errorf("nothing was cut, but %+v", res)
	}
}

func TestUnreadInputDoesNotHoldTheCall(t *testing.T) {
	s := yetttest.StartSSHD(t)
	res, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s),
		action.SSH{Command: "exit 4", Stdin: make([]byte, 8<<20)})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 4)
}

func TestOutputIsCappedForEachStreamAndDrained(t *testing.T) {
	s := yetttest.StartSSHD(t)
	tg := targetOf(s)
	tg.MaxOutput = 1000
	// More than a channel window on both: undrained, the command would block.
	const flood = "head -c 5000000 /dev/zero"
	res, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: flood + " & " + flood + " >&2; wait; exit 7"})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 7)
	if len(res.Stdout) != 1000 || len(res.Stderr) != 1000 || !res.StdoutTruncated || !res.StderrTruncated {
		t.Errorf("kept %d and %d bytes, truncated %v and %v", len(res.Stdout), len(res.Stderr), res.StdoutTruncated, res.StderrTruncated)
	}
	res, err = newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "head -c 1000 /dev/zero; head -c 1001 /dev/zero >&2"})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Stdout) != 1000 || res.StdoutTruncated || len(res.Stderr) != 1000 || !res.StderrTruncated {
		t.Errorf("at the limit: kept %d and %d bytes, truncated %v and %v", len(res.Stdout), len(res.Stderr), res.StdoutTruncated, res.StderrTruncated)
	}
}

func TestBackgroundProcessDoesNotHoldTheCall(t *testing.T) {
	s := yetttest.StartSSHD(t)
	g := newGate(t)
	res := perform(t, s, g.hold()+" & echo done; exit 5")
	wantStatus(t, res, 5)
	if string(res.Stdout) != "done\n" || !res.LeftOpen {
		t.Errorf("stdout %q, left open %v", res.Stdout, res.LeftOpen)
	}
}

func TestOutputAfterTheExitStatusIsKept(t *testing.T) {
	s := yetttest.StartSSHD(t)
	res := perform(t, s, "(sleep 0.2; echo late) & echo early")
	wantStatus(t, res, 0)
	if string(res.Stdout) != "early\nlate\n" || res.LeftOpen {
		t.Errorf("stdout %q, left open %v", res.Stdout, res.LeftOpen)
	}
}

func TestHostGetsNoEnvironmentAndNoTerminal(t *testing.T) {
	t.Setenv("LC_YETT_CANARY", "canary")
	t.Setenv("SSH_AUTH_SOCK", "/tmp/canary")
	s := yetttest.StartSSHD(t, "AcceptEnv *", "AllowAgentForwarding yes", "PermitTTY yes")
	res := perform(t, s, "env; test -t 0 || test -t 1 || echo no terminal")
	for _, bad := range []string{"canary", "SSH_AUTH_SOCK", "SSH_TTY"} {
		if strings.Contains(string(res.Stdout), bad) {
			t.Errorf("the command sees %s:\n%s", bad, res.Stdout)
		}
	}
	if !strings.Contains(string(res.Stdout), "no terminal") {
		t.Errorf("the command has a terminal:\n%s", res.Stdout)
	}
}

func TestCancelledBeforeTheCommandIsNotSent(t *testing.T) {
	s := yetttest.StartSSHD(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newExecutor().Do(ctx, targetOf(s), signerOf(t, s), action.SSH{Command: "true"})
	if e := wantError(t, err, sshexec.CodeUpstream, false); !errors.Is(e, context.Canceled) {
		t.Errorf("cause = %v", e.Cause)
	}
}

func TestCancelledWhileTheCommandRunsMaybeSent(t *testing.T) {
	s := yetttest.StartSSHD(t)
	g := newGate(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := begin(ctx, targetOf(s), signerOf(t, s), action.SSH{Command: g.tell() + "; " + g.hold()})
	g.wait(t)
	cancel()
	a := receive(t, c)
	if e := wantError(t, a.err, sshexec.CodeUpstream, true); !errors.Is(e, context.Canceled) {
		t.Errorf("cause = %v", e.Cause)
	}
	if a.res == nil || !a.res.Exit.Unknown {
		t.Errorf("result = %+v, want one with an unknown exit", a.res)
	}
}

func TestRunTimeout(t *testing.T) {
	s := yetttest.StartSSHD(t)
	for name, set := range map[string]func(*sshexec.Target, *action.SSH){
		"of the target":      func(tg *sshexec.Target, r *action.SSH) { tg.RunTimeout = 300 * time.Millisecond },
		"of the action":      func(tg *sshexec.Target, r *action.SSH) { r.Timeout = 300 * time.Millisecond },
		"while output comes": func(tg *sshexec.Target, r *action.SSH) { r.Timeout, r.Command = 300*time.Millisecond, "yes" },
		"after the streams ended": func(tg *sshexec.Target, r *action.SSH) {
			r.Timeout, r.Command = 300*time.Millisecond, "exec >/dev/null 2>&1; "+r.Command
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			tg, r := targetOf(s), action.SSH{Command: g.hold()}
			set(&tg, &r)
			a := receive(t, begin(t.Context(), tg, signerOf(t, s), r))
			if e := wantError(t, a.err, sshexec.CodeUpstream, true); !errors.Is(e, context.DeadlineExceeded) {
				t.Errorf("cause = %v", e.Cause)
			}
		})
	}
}

func TestOutputBeforeTheEndIsKept(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, tg := newSSHHost(t, func(conn *ssh.ServerConn, ch ssh.Channel, req *ssh.Request) {
		req.Reply(true, nil)
		ch.Write([]byte("so far"))
		conn.SendRequest("ping", true, nil) // its answer tells that the output has come
		cancel()
		conn.Wait()
	})
	res, err := newExecutor().Do(ctx, tg, newTestKey(t), action.SSH{Command: "x"})
	wantError(t, err, sshexec.CodeUpstream, true)
	if res == nil || string(res.Stdout) != "so far" || !res.Exit.Unknown {
		t.Errorf("result = %+v", res)
	}
}

func TestNegativeLimitsAreRefused(t *testing.T) {
	for name, tg := range map[string]sshexec.Target{
		"dial":      {DialTimeout: -1},
		"handshake": {HandshakeTimeout: -1},
		"run":       {RunTimeout: -1},
		"keepalive": {Keepalive: -1},
		"output":    {MaxOutput: -1},
	} {
		tg.User, tg.Address, tg.HostKeys = "u", "127.0.0.1:1", []string{publicLine(newTestKey(t).PublicKey())}
		if _, err := newExecutor().Do(t.Context(), tg, newTestKey(t), action.SSH{Command: "true"}); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			wantError(t, err, sshexec.CodeInternal, false)
		}
	}
}
