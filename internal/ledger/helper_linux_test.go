package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

// The test binary is also the second process of the tests: with this variable
// set it plays the part that it names, on the ledger in its arguments.
const partVariable = "YETT_LEDGER_TEST_PART"

var parts = map[string]func(l func() *Ledger) error{
	"open":      func(l func() *Ledger) error { l(); return nil },
	"hold":      playHold,
	"workload":  playWorkload,
	"full file": playFullFile,
	"full disk": playFullDisk,
	"readonly":  playReadOnly,
	"umask":     playUmask,
	"canary":    playCanary,
	"append":    playAppend,
	"deeds":     playDeeds,
	"start":     playStart,
}

func TestMain(m *testing.M) {
	part := os.Getenv(partVariable)
	if part == "" {
		os.Exit(m.Run())
	}
	signal.Ignore(syscall.SIGXFSZ)
	open := func() *Ledger {
		var private, public []byte
		fmt.Sscanf(os.Args[2], "%x", &private)
		fmt.Sscanf(os.Args[3], "%x", &public)
		l, err := Open(os.Args[1], Options{AuditPublicKey: public})
		if err == nil {
			var o *Opener
			if o, err = NewOpener(private); err == nil {
				err = l.CheckOperations(background, o, 0)
			}
		}
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(3)
		}
		return l
	}
	if err := parts[part](open); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is a second process that plays a part.
type process struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.WriteCloser
}

func (in installation) command(part string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", in.dir, fmt.Sprintf("%x", in.private), fmt.Sprintf("%x", in.public))
	cmd.Env = append(os.Environ(), partVariable+"="+part)
	return cmd
}

func (in installation) start(t testing.TB, part string) *process {
	t.Helper()
	return startCommand(t, in.command(part))
}

func startCommand(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	p.lines = bufio.NewScanner(out)
	return p
}

// line waits for the next line of the process.
func (p *process) line(t testing.TB) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the process ended: %v", p.cmd.Wait())
	}
	return p.lines.Text()
}

// kill is kill -9; it returns what the process had still said.
func (p *process) kill() (rest []string) {
	p.cmd.Process.Kill()
	for p.lines.Scan() {
		rest = append(rest, p.lines.Text())
	}
	p.cmd.Wait()
	return rest
}

// mustRun runs a part to its end and fails with what it says.
func mustRun(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, strings.TrimSpace(string(out)))
	}
}

// playHold opens the ledger, leaves one operation in each open state and
// waits to be killed.
func playHold(open func() *Ledger) error {
	l := open()
	if err := errors.Join(leaveOpen(l), l.w.drain.upTo(0)); err != nil {
		return err
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func leaveOpen(l *Ledger) error {
	queued, executing := newOperation(), newOperation()
	queued.ID, executing.ID = "queued", "executing"
	executing.Unsafe = true
	executing.Digest = []byte("digest of the unsafe action")
	if _, err := l.Queue(background, queued, row("queued")); err != nil {
		return err
	}
	_, err := l.Begin(background, executing, row("intent"), nil)
	return err
}

// playWorkload tells each durable step in a line after it happened.
func playWorkload(open func() *Ledger) error {
	l := open()
	for i := 0; ; i++ {
		queued, op := newOperation(), newOperation()
		queued.ID, op.ID = fmt.Sprintf("queued-%04d", i), fmt.Sprintf("op-%04d", i)
		if _, err := l.Queue(background, queued, row("queued")); err != nil {
			return err
		}
		fmt.Println("queued", queued.ID)
		if _, err := l.Begin(background, op, row("intent"), nil); err != nil {
			return err
		}
		fmt.Println("executing", op.ID)
		if err := <-l.End(op.ID, action.Completed, "", row("outcome")); err != nil {
			return err
		}
		fmt.Println("completed", op.ID)
		if i%2 == 0 {
			if err := l.Deny(background, queued.ID, "denied", row("denied")); err != nil {
				return err
			}
			fmt.Println("denied", queued.ID)
		}
	}
}

// playCanary writes its secret into every sealed part and waits.
func playCanary(open func() *Ledger) error {
	l := open()
	secret := os.Getenv("CANARY")
	text, _ := json.Marshal(map[string]string{"http:billing.read": "/v1/invoices?key=" + secret})
	r := Row{Kind: "op-kind " + secret, SessionID: "session " + secret,
		Verified: text, Claimed: text, Granted: text, Request: text, Outcome: text}
	op := newOperation()
	l.AppendSoon(r)
	if _, err := l.Append(background, r); err != nil {
		return err
	}
	if _, err := l.Queue(background, op, r); err != nil {
		return err
	}
	if _, err := l.Begin(background, op, r, nil); err != nil {
		return err
	}
	if err := <-l.End(op.ID, action.Completed, "", r); err != nil {
		return err
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// playAppend is a broker's whole life.
func playAppend(open func() *Ledger) error {
	l := open()
	for range 500 {
		l.AppendSoon(row("soon"))
	}
	return l.Close()
}
