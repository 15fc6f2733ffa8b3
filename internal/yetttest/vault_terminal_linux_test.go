package yetttest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/vault"
)

// typist runs a command on a terminal of its own and types answers.
type typist struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	ended  chan struct{}

	mu     sync.Mutex
	screen bytes.Buffer
	seen   int
}

func (b *Broker) typing(t *testing.T, args ...string) *typist {
	t.Helper()
	mine, tty, err := terminal()
	must(t, err)
	defer tty.Close()
	modes, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	must(t, err)
	modes.Lflag |= unix.ECHO | unix.ICANON | unix.ISIG // or nothing could be seen to be hidden
	modes.Iflag |= unix.ICRNL
	must(t, unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, modes))
	p := &typist{t: t, master: mine, ended: make(chan struct{})}
	p.cmd = exec.Command(Command(args...), append(args, "--home", b.Home)...)
	p.cmd.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, p.cmd.Start())
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.master.Close()
		<-p.ended
	})
	go func() {
		defer close(p.ended)
		buf := make([]byte, 4096)
		for {
			n, err := p.master.Read(buf)
			p.mu.Lock()
			p.screen.Write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p
}

// shows waits until a text is on the screen, behind what was waited for before,
// and returns what stands between.
func (p *typist) shows(text string) string {
	p.t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		p.mu.Lock()
		fresh := p.screen.String()[p.seen:]
		i := strings.Index(fresh, text)
		if i >= 0 {
			p.seen += i + len(text)
		}
		p.mu.Unlock()
		if i >= 0 {
			return fresh[:i]
		}
	}
	p.t.Fatalf("the terminal never shows %q:\n%s", text, p.all())
	return ""
}

func (p *typist) types(question, answer string) {
	p.t.Helper()
	p.shows(question)
	_, err := p.master.WriteString(answer + "\n")
	must(p.t, err)
}

func (p *typist) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.String()
}

func (p *typist) exits(code int) {
	p.t.Helper()
	p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("exit %d, want %d:\n%s", got, code, p.all())
	}
}

var printedCode = regexp.MustCompile(`[0-9A-Z]{5}(-[0-9A-Z]{5}){7}`)

// TestVaultOnATerminal: as a person does it, and nothing that is typed hidden
// stands on the screen.
func TestVaultOnATerminal(t *testing.T) {
	b := New(t)
	b.Serve()
	b.Unlock()
	p := b.typing(t, "vault", "passphrase")
	p.types("Present Yett passphrase, or the recovery code: ", Passphrase)
	p.types("New Yett passphrase: ", another)
	p.types("The same again: ", another+"x")
	p.shows("Once more. The two passphrases differ.")
	p.types("New Yett passphrase: ", another)
	p.types("The same again: ", another)
	p.shows("The passphrase is changed.")
	p.exits(0)
	for _, hidden := range []string{Passphrase, "another passphrase"} {
		if strings.Contains(p.all(), hidden) {
			t.Error("a passphrase stands on the screen")
		}
	}

	p = b.typing(t, "vault", "recovery-code")
	p.types("Yett passphrase: ", another)
	first := printedCode.FindString(p.shows("Type its last group"))
	for range 3 {
		p.types("to make it valid: ", "wrong")
	}
	p.shows("That is not its last group.")
	p.exits(1)
	p = b.typing(t, "vault", "recovery-code")
	p.types("Yett passphrase: ", another)
	code := printedCode.FindString(p.shows("Type its last group"))
	p.types("to make it valid: ", strings.ToLower(code[len(code)-5:]))
	p.shows(strings.ToLower(code[len(code)-5:])) // the terminal echoes where nothing is hidden
	p.shows("The new recovery code is valid")
	p.exits(0)
	b.RunPlain("lock")
	if first == "" || b.opens(first) || !b.opens(code) || !b.opens(another) {
		t.Error("what opens the vault is not what was confirmed")
	}

	file := filepath.Join(t.TempDir(), "backup")
	wantExit(t, b.RunWith("", another, "unlock"), 0)
	wantExit(t, b.RunWith("", another, "vault", "backup", file), 0)
	r, _ := b.runSecrets(true, pass(another), "vault", "recovery-code")
	wantExit(t, r, 0)
	b.Stop()
	for _, c := range []struct {
		answer, says string
		exit         int
	}{{"y", "Nothing was changed.", 1}, {"yes", "is in place", 0}} {
		p = b.typing(t, "vault", "restore", file)
		p.types("Passphrase of the backup, or its recovery code: ", another)
		p.types("Type yes to go on: ", c.answer)
		if c.answer == "y" {
			p.types("The whole word, please. Type yes: ", "y")
		}
		p.shows(c.says)
		p.exits(c.exit)
	}
}

// TestV04_NoServiceOfTheSessionIsAsked: a secret service that accepts and never
// answers holds nobody up, since nothing of the vault depends on one.
func TestV04_NoServiceOfTheSessionIsAsked(t *testing.T) {
	dir, err := os.MkdirTemp("", "b")
	must(t, err)
	defer os.RemoveAll(dir)
	bus, err := net.Listen("unix", filepath.Join(dir, "bus"))
	must(t, err)
	defer bus.Close()
	asked := make(chan struct{}, 16)
	go func() {
		for {
			conn, err := bus.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			defer conn.Close() // held, and never answered
		}
	}()
	b := New(t)
	must(t, os.Remove(filepath.Join(b.Home, vault.FileName)))
	b.Env = []string{"DBUS_SESSION_BUS_ADDRESS=unix:path=" + filepath.Join(dir, "bus"), "XDG_RUNTIME_DIR=" + dir}
	b.Must("init")
	b.Serve()
	b.Must("unlock")
	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase")
	wantExit(t, r, 0)
	b.RunPlain("lock")
	if len(asked) > 0 || !b.opens(another) {
		t.Errorf("%d connections to the session's bus", len(asked))
	}
}

// TestApproveAllThatWaits: with one proof, mistyped at first, a person goes through
// all cards; each is shown and asked about, and one that gets no yes waits on.
func TestApproveAllThatWaits(t *testing.T) {
	b := Start(t, StartUpstream(t, canary).Access(), "demo", canary)
	one, two := b.Open(), b.Open()
	one.OpenSession("http:demo.read")
	two.OpenSession("http:demo.write")
	p := b.typing(t, "approve", "--for", "5m")
	p.types("Yett passphrase: ", another)
	p.shows("That is not the passphrase.")
	p.types("Yett passphrase: ", Passphrase)
	p.shows("http:demo.read")
	p.types("Type yes: ", "yes")
	p.shows("Approved.")
	p.shows("http:demo.write")
	p.types("Type yes: ", "no")
	p.shows("the card still waits")
	p.exits(0)
	if strings.Count(p.all(), "Yett passphrase: ") != 2 {
		t.Errorf("the passphrase was asked for again:\n%s", p.all())
	}
	if cards := b.Pending(); len(cards) != 1 || cards[0].ApprovalID != two.Session.Pending.ApprovalID {
		t.Errorf("waiting: %+v", cards)
	}
	if op := one.MustAct("http:demo.read", readX); op.State != "completed" {
		t.Errorf("%+v", op)
	}
	p = b.typing(t, "secret", "remove", "demo")
	for range 3 {
		p.types("Yett passphrase: ", another)
	}
	p.exits(3)
}

// TestSeveralValuesWithOneProof: the values of several credentials take one
// passphrase; on standard input there is one value.
func TestSeveralValuesWithOneProof(t *testing.T) {
	b := Start(t, "[credential.a]\nkind = \"bearer\"\norigin = \"https://a.example\"\n[credential.b]\nkind = \"bearer\"\norigin = \"https://b.example\"\n")
	if r := b.RunWith(canary, Passphrase, "secret", "set", "a", "b"); r.Code != 2 {
		t.Errorf("%+v", r)
	}
	p := b.typing(t, "secret", "set", "a", "b")
	p.types("Value of a: ", canary)
	p.types("Yett passphrase: ", Passphrase)
	p.types("Value of b: ", canary)
	p.shows("b has its value.")
	p.exits(0)
	if strings.Count(p.all(), "Yett passphrase: ") != 1 || strings.Contains(p.all(), canary) {
		t.Errorf("it showed\n%s", p.all())
	}
}
