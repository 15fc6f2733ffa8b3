package yetttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/vault"
)

// Passphrase opens every vault of the tests.
const Passphrase = "four words of a passphrase"

// Patience bounds every wait for an event. It is long because machines are
// shared; a test that meets it has failed.
const Patience = 30 * time.Second

// Bin returns the path of a built program.
func Bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

// shipped is the directory, beside the programs, of those without the race
// detector.
const shipped = "shipped"

// Static returns the path of a program as it is shipped: tests with the race
// detector run programs that are built otherwise.
func Static(name string) string {
	if !raceEnabled {
		return Bin(name)
	}
	return Bin(filepath.Join(shipped, name))
}

// Command returns the path of the yett that runs a command. The race detector
// makes a short command several times slower and has next to nothing to see in
// it, so that only commands have it which start or name the programs beside
// them, or stay.
func Command(args ...string) string {
	if len(args) > 0 && slices.Contains([]string{"serve", "up", "try", "selftest", "doctor", "console", "connect", "add", "adopt", "review"}, args[0]) {
		return Bin("yett")
	}
	return Static("yett")
}

// Broker is a real broker on a home of its own. Everything that its processes
// print is kept, so that a test can search it.
type Broker struct {
	T    testing.TB
	Home string
	Env  []string // of the broker and the commands; empty by default

	Under     []string // the command that starts the broker, such as prlimit; none by default
	ServeArgs []string // more of yett serve

	cmd *exec.Cmd
	log *buffer

	mu  sync.Mutex
	out bytes.Buffer // of every command that was run
}

// New makes a home with a vault; no broker runs yet.
func New(t testing.TB) *Broker {
	t.Helper()
	dir, err := os.MkdirTemp("", "y")
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{T: t, Home: filepath.Join(dir, "h"), log: &buffer{}}
	t.Cleanup(func() {
		b.Kill()
		if bytes.Contains([]byte(b.log.String()), []byte("DATA RACE")) {
			t.Error("the broker has a data race")
		}
		if t.Failed() {
			t.Logf("log of the broker:\n%s", b.log)
		}
		os.RemoveAll(dir)
	})
	makeTemplate(t)
	if err := os.Mkdir(b.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Home, vault.FileName), template.file, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// Start makes a home, starts the broker, unlocks it and applies an access file.
// values are set one by one as name, value.
func Start(t testing.TB, accessFile string, values ...string) *Broker {
	t.Helper()
	b := New(t)
	b.Serve()
	b.Unlock()
	b.Apply(accessFile)
	for i := 0; i+1 < len(values); i += 2 {
		b.SetSecret(values[i], values[i+1])
	}
	return b
}

// Serve starts the broker and returns when it answers.
func (b *Broker) Serve() {
	b.T.Helper()
	args := append(append(slices.Clone(b.Under), Bin("yett"), "serve", "--home", b.Home), b.ServeArgs...)
	b.cmd = exec.Command(args[0], args[1:]...)
	b.cmd.Env = b.Env
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		b.T.Fatal(err)
	}
	deadline := time.Now().Add(Patience)
	for !bytes.Contains(b.log.Bytes(), []byte("serving, locked")) {
		if time.Now().After(deadline) {
			b.T.Fatalf("the broker did not start:\n%s", b.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.log.forget("serving, locked")
}

// PID is the process of the broker.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// Kill ends the broker as a crash would.
func (b *Broker) Kill() {
	if b.cmd != nil {
		b.cmd.Process.Signal(syscall.SIGCONT)
		b.cmd.Process.Kill()
		b.cmd.Wait()
		b.cmd = nil
	}
}

// Stop ends the broker with SIGTERM and waits for it.
func (b *Broker) Stop() {
	b.cmd.Process.Signal(syscall.SIGTERM)
	b.cmd.Wait()
	b.cmd = nil
}

// Restart kills the broker, starts it again and unlocks it.
func (b *Broker) Restart() {
	b.T.Helper()
	b.Kill()
	b.Serve()
	b.Unlock()
}

// Location is where the broker lives.
func (b *Broker) Location() endpoint.Location {
	loc, err := endpoint.InHome(b.Home)
	if err != nil {
		b.T.Fatal(err)
	}
	return loc
}

// Result is what a command printed, and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// JSON decodes the output.
func (r Result) JSON(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Stdout), v); err != nil {
		t.Fatalf("output is not JSON: %v\n%s\n%s", err, r.Stdout, r.Stderr)
	}
}

// Run runs the command line with the passphrase on a descriptor.
func (b *Broker) Run(args ...string) Result { return b.RunWith("", Passphrase, args...) }

// RunPlain runs the command line without any proof.
func (b *Broker) RunPlain(args ...string) Result { return b.RunWith("", "", args...) }

// RunWith runs the command line with a standard input and a passphrase, none
// of which need be given.
func (b *Broker) RunWith(stdin, passphrase string, args ...string) Result {
	args = append(args, "--home", b.Home)
	c := exec.Command(Command(args...))
	c.Env = b.Env
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, wherever the tests run
	c.Stdin = bytes.NewReader([]byte(stdin))
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if passphrase != "" {
		r, w, err := os.Pipe()
		if err != nil {
			b.T.Fatal(err)
		}
		defer r.Close()
		fmt.Fprintln(w, passphrase)
		w.Close()
		c.ExtraFiles = []*os.File{r}
		args = append(args, "--passphrase-fd", "3")
	}
	c.Args = append(c.Args, args...)
	err := c.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		b.T.Fatalf("running yett %v: %v", args, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.Write(stdout.Bytes())
	b.out.Write(stderr.Bytes())
	return Result{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

// Must runs the command line with the passphrase and wants success.
func (b *Broker) Must(args ...string) Result {
	b.T.Helper()
	r := b.Run(args...)
	if r.Code != 0 {
		b.T.Fatalf("yett %v: exit %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
	return r
}

// Printed returns everything that broker and commands have printed so far.
func (b *Broker) Printed() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(b.log.Bytes(), b.out.Bytes()...)
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu   sync.Mutex
	b    []byte
	seen int
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	return len(p), nil
}

// Bytes returns what was written since forget.
func (b *buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.b[b.seen:])
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}

// forget makes Bytes begin behind a mark that has been seen.
func (b *buffer) forget(mark string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := bytes.Index(b.b[b.seen:], []byte(mark)); i >= 0 {
		b.seen += i + len(mark)
	}
}
