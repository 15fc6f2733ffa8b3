package sshexec_test

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

func TestTerminalOnRequest(t *testing.T) {
	s := yetttest.StartSSHD(t)
	for name, c := range map[string]struct{ command, stdin, want string }{
		"all three are it":         {"test -t 0 && test -t 1 && test -t 2 && echo yes", "", "yes\n"},
		"lines end as written":     {"printf 'a\\nb\\n'; echo c >&2", "", "a\nb\nc\n"},
		"input is typed, unechoed": {"cat", "one\ntwo\n", "one\ntwo\n"},
		"without a last line end":  {"cat", "one\ntwo", "one\ntwo"},
		"none":                     {"cat", "", ""},
		"it is wide":               {"stty size", "", "50 200\n"},
	} {
		res, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s), action.SSH{Command: c.command, Stdin: []byte(c.stdin), PTY: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantStatus(t, res, 0)
		if string(res.Stdout) != c.want || len(res.Stderr) != 0 {
			t.Errorf("%s: stdout %q, stderr %q, want %q", name, res.Stdout, res.Stderr, c.want)
		}
	}
}

func TestRefusedTerminalOrVariableWasNotRun(t *testing.T) {
	s := yetttest.StartSSHD(t, "PermitTTY no", "AcceptEnv LC_OURS")
	begun := func() error { t.Error("the command was about to leave"); return nil }
	for name, r := range map[string]action.SSH{
		"terminal": {Command: "true", PTY: true},
		"variable": {Command: "true", Env: []action.Variable{{Name: "OTHER", Value: "x"}}},
	} {
		tg := targetOf(s)
		tg.Begin = begun
		_, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), r)
		if e := wantError(t, err, sshexec.CodeUpstream, false); !strings.Contains(e.Error(), "the host") {
			t.Errorf("%s: %v", name, e)
		}
	}
	res, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s),
		action.SSH{Command: `printf %s "$LC_OURS"`, Env: []action.Variable{{Name: "LC_OURS", Value: "a 'b' $c"}}})
	if err != nil || string(res.Stdout) != "a 'b' $c" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestEndOfALongStreamIsKept(t *testing.T) {
	s := yetttest.StartSSHD(t)
	tg := targetOf(s)
	tg.MaxOutput = 1000
	res, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "seq 1 100000; seq 1 200 >&2"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := exec.Command("seq", "1", "100000").Output()
	if err != nil {
		t.Fatal(err)
	}
	if res.StdoutTotal != int64(len(all)) || !res.StdoutTruncated || !bytes.Equal(res.Stdout, all[:1000]) ||
		!bytes.Equal(res.StdoutTail, all[len(all)-sshexec.TailOutput:]) {
		t.Errorf("total %d of %d, %d bytes, tail of %d bytes", res.StdoutTotal, len(all), len(res.Stdout), len(res.StdoutTail))
	}
	if res.StderrTruncated || len(res.StderrTail) != 0 || res.StderrTotal != int64(len(res.Stderr)) {
		t.Errorf("stderr: total %d, %d bytes, tail %q", res.StderrTotal, len(res.Stderr), res.StderrTail)
	}
}

// sshd hands the command to the login shell as one argument behind -c; a forced
// command does the same for a shell of our choice.
func TestS10_LoginShellsBehindARealHost(t *testing.T) {
	args := []string{"%s|", "a b; id", "$HOME", "*", "", "it's", "two\nlines", `back\slash`, "~", "!!", "-n", "é"}
	want := "a b; id|$HOME|*||it's|two\nlines|back\\slash|~|!!|-n|é|"
	tried := 0
	for _, shell := range []string{"sh", "dash", "bash", "rbash", "zsh", "fish", "ksh"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		tried++
		in, refusal := action.NewSSH(action.SSHInput{Argv: append([]string{"printf"}, args...)})
		if refusal != nil {
			t.Fatal(refusal)
		}
		s := yetttest.StartSSHD(t, `ForceCommand exec `+path+` -c "$SSH_ORIGINAL_COMMAND"`)
		res, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s), *in)
		if err != nil {
			t.Fatalf("%s: %v", shell, err)
		}
		if wantStatus(t, res, 0); string(res.Stdout) != want {
			t.Errorf("%s was given\n%q, want\n%q", shell, res.Stdout, want)
		}
	}
	if tried == 0 {
		t.Fatal("no shell was found")
	}
}

// E5: once the command is out and its session has ended, its outcome is awaited
// and not one byte is sent, whatever the host asks for.
func TestE5_NothingLeavesWhileTheOutcomeIsAwaited(t *testing.T) {
	ask, finish := make(chan struct{}), make(chan struct{})
	h, tg := channelHost(t, func(_, _ int, c *ssh.ServerConn, nc ssh.NewChannel) {
		ch, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		for req := range reqs {
			req.Reply(true, nil)
			if req.Type != "exec" {
				continue
			}
			go func() {
				<-ask
				for range 100 { // more than a window's worth of answers
					ch.Write(make([]byte, 10<<10))
				}
				go c.SendRequest("are you there", true, nil)
				<-finish
				ch.SendRequest("exit-status", false, exitStatus(7))
				ch.Close()
			}()
		}
	})
	p := newCounter(t, h.address)
	tg.Address, tg.Keepalive = p.address, 20*time.Millisecond
	quiet, end := context.WithCancel(t.Context())
	sent := make(chan struct{})
	tg.Quiet, tg.Sent = quiet, func() { close(sent) }
	c := begin(t.Context(), tg, newTestKey(t), action.SSH{Command: "x", Stdin: []byte("input")})
	happens(t, sent, "sending the command")
	end()
	time.Sleep(100 * time.Millisecond) // what the rule gives
	before := p.sent.Load()
	close(ask)
	time.Sleep(100 * time.Millisecond)
	close(finish)
	a := receive(t, c)
	if a.err != nil {
		t.Fatal(a.err)
	}
	wantStatus(t, a.res, 7)
	happens(t, p.closed, "closing the connection")
	if n := p.sent.Load() - before; n != 0 || len(a.res.Stdout) != 1000<<10 {
		t.Errorf("%d bytes were sent after the end; %d bytes came", n, len(a.res.Stdout))
	}
}
