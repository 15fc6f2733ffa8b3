package yetttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// secretArg is a flag that names a descriptor, and the line that is read there.
type secretArg struct{ flag, line string }

// runSecrets runs the command line with a line on each of several descriptors.
// With code, what it writes to --recovery-fd is returned.
func (b *Broker) runSecrets(code bool, secrets []secretArg, args ...string) (r Result, recovery string) {
	b.T.Helper()
	c := b.secretCommand(secrets, args...)
	defer closeFiles(c)
	var out *os.File
	if code {
		pr, pw, err := os.Pipe()
		must(b.T, err)
		out = pr
		defer pr.Close()
		c.ExtraFiles = append(c.ExtraFiles, pw)
		c.Args = append(c.Args, "--recovery-fd", fmt.Sprint(2+len(c.ExtraFiles)))
	}
	r = b.finish(c)
	if code {
		c.ExtraFiles[len(c.ExtraFiles)-1].Close()
		text, err := io.ReadAll(out)
		must(b.T, err)
		recovery = strings.TrimSpace(string(text))
	}
	return r, recovery
}

// secretCommand is a command that is not started yet, without a terminal.
func (b *Broker) secretCommand(secrets []secretArg, args ...string) *exec.Cmd {
	b.T.Helper()
	c := exec.Command(Command(args...), append(args, "--home", b.Home)...)
	c.Env = b.Env
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, s := range secrets {
		pr, pw, err := os.Pipe()
		must(b.T, err)
		fmt.Fprintln(pw, s.line)
		pw.Close()
		c.ExtraFiles = append(c.ExtraFiles, pr)
		c.Args = append(c.Args, s.flag, fmt.Sprint(2+len(c.ExtraFiles)))
	}
	return c
}

func closeFiles(c *exec.Cmd) {
	for _, f := range c.ExtraFiles {
		f.Close()
	}
}

func (b *Broker) finish(c *exec.Cmd) Result {
	b.T.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil && c.ProcessState == nil {
		b.T.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.Write(stdout.Bytes())
	b.out.Write(stderr.Bytes())
	return Result{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

func pass(line string) []secretArg { return []secretArg{{"--passphrase-fd", line}} }

func passAndNew(old, next string) []secretArg {
	return []secretArg{{"--passphrase-fd", old}, {"--new-passphrase-fd", next}}
}

// wantExit checks a command's end: its exit code and what it says.
func wantExit(t *testing.T, r Result, code int, says ...string) {
	t.Helper()
	if r.Code != code {
		t.Fatalf("exit %d, want %d\n%s%s", r.Code, code, r.Stdout, r.Stderr)
	}
	for _, s := range says {
		if !strings.Contains(r.Stdout+r.Stderr, s) {
			t.Errorf("it does not say %q:\n%s%s", s, r.Stdout, r.Stderr)
		}
	}
}

// newCode replaces the recovery code, which of the tests' vault nobody knows.
func (b *Broker) newCode(passphrase string) string {
	b.T.Helper()
	r, code := b.runSecrets(true, pass(passphrase), "vault", "recovery-code")
	if r.Code != 0 || len(code) != 47 {
		b.T.Fatalf("exit %d, code of %d characters\n%s%s", r.Code, len(code), r.Stdout, r.Stderr)
	}
	return code
}

// opens reports whether the running, locked broker opens with a passphrase or
// code, and locks it again.
func (b *Broker) opens(phrase string) bool {
	b.T.Helper()
	r := b.RunWith("", phrase, "unlock")
	if r.Code == 0 {
		if l := b.RunPlain("lock"); l.Code != 0 {
			b.T.Fatalf("lock: %s", l.Stderr)
		}
	} else if r.Code != 3 {
		b.T.Fatalf("unlock: exit %d\n%s", r.Code, r.Stderr)
	}
	return r.Code == 0
}

// rowsWith reads the ledger's rows of a kind, with a passphrase.
func (b *Broker) rowsWith(passphrase, kind string) (rows []Row) {
	b.T.Helper()
	r := b.RunWith("", passphrase, "activity", "--json")
	if r.Code != 0 {
		b.T.Fatalf("activity: exit %d\n%s", r.Code, r.Stderr)
	}
	for line := range strings.Lines(r.Stdout) {
		var row Row
		must(b.T, json.Unmarshal([]byte(line), &row))
		if row.Kind == kind {
			rows = append(rows, row)
		}
	}
	return rows
}

// managed wraps a request as the command line does, with a proof or without.
func managed(t testing.TB, request any, proof *wire.Proof) wire.Managed {
	t.Helper()
	raw, err := json.Marshal(request)
	must(t, err)
	return wire.Managed{Request: raw, Proof: proof}
}

// laterVersion is a vault file as a later release might write it.
func laterVersion(image []byte) []byte {
	later := bytes.Clone(image)
	later[bytes.IndexByte(later, '\n')-1] = '9'
	sum := sha256.Sum256(later[:len(later)-sha256.Size])
	return append(later[:len(later)-sha256.Size], sum[:]...)
}
