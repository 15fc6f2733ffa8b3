package suspend

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const passphrase = "four words of a passphrase"

// built is removed when the tests have ended.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// programs builds yett and yett-mcp once and returns where they are.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "suspend")
	if err != nil {
		return "", err
	}
	built = dir
	c := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "../../cmd/yett", "../../cmd/yett-mcp")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("building: %w\n%s", err, out)
	}
	return dir, err
})

// served is a real broker whose system bus is one of the test.
type served struct {
	t     *testing.T
	yett  string
	home  string
	cmd   *exec.Cmd
	log   *journal
	ended chan struct{}
}

// serve starts a broker that sees the directory of bus as /run/dbus.
func serve(t *testing.T, bus string, flags ...string) *served {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, yett: filepath.Join(dir, "yett"), home: filepath.Join(t.TempDir(), "home"), log: newJournal(), ended: make(chan struct{})}
	if err := os.Rename(bus, filepath.Join(filepath.Dir(bus), "system_bus_socket")); err != nil {
		t.Fatal(err)
	}
	s.must("init", "--recovery-fd", "4")

	const mount = `mount -t tmpfs none /run && mkdir /run/dbus && mount --bind "$1" /run/dbus && shift && exec "$@"`
	s.cmd = exec.Command("unshare", append([]string{"--mount", "sh", "-c", mount, "sh", filepath.Dir(bus), s.yett, "serve", "--home", s.home}, flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.ended
	})
	s.log.wait(t, "serving, locked")
	return s
}

// asRoot skips a test that mounts. Root runs it.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a bus of its own")
	}
}

// must runs a command with the passphrase.
func (s *served) must(args ...string) []byte {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	w.WriteString(passphrase + "\n")
	w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer null.Close()
	c := exec.Command(s.yett, append(args, "--home", s.home, "--passphrase-fd", "3")...)
	c.ExtraFiles = []*os.File{r, null}
	out, err := c.Output()
	if err != nil {
		s.t.Fatalf("yett %v: %v\n%s\n%s", args, err, out, s.log)
	}
	return out
}

func (s *served) state() string {
	s.t.Helper()
	var status struct{ State string }
	if err := json.Unmarshal(s.must("status", "--json"), &status); err != nil {
		s.t.Fatal(err)
	}
	return status.State
}

func TestServeLocksBeforeTheMachineSleeps(t *testing.T) {
	asRoot(t)
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d)
	s := serve(t, d.socket)
	k := l.lock()
	s.must("unlock")
	if got := s.state(); got != "ready" {
		t.Fatalf("unlocked, and %s", got)
	}
	l.say(true)
	k.released(t)
	if got := s.state(); got != "locked" {
		t.Fatalf("the machine may sleep, and Yett is %s", got)
	}
	l.say(false)
	l.lock()
	s.must("unlock")
}

func TestServeLeavesSleepAloneIfToldSo(t *testing.T) {
	asRoot(t)
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d)
	observer := d.connect(t)
	s := serve(t, d.socket, "--lock-on-suspend=false")
	s.must("unlock")
	var names []string
	if err := observer.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, ":") && name != l.conn.Names()[0] && name != observer.Names()[0] {
			t.Errorf("somebody listens as %s", name)
		}
	}
	l.say(true)
	if got := s.state(); got != "ready" {
		t.Errorf("Yett is %s", got)
	}
}

// A bus that takes the connection and never answers.
func TestV04_ServeStartsAndStopsOnABusThatNeverAnswers(t *testing.T) {
	asRoot(t)
	t.Parallel()
	socket, taken := mute(t)
	s := serve(t, socket)
	<-taken
	s.must("unlock")
	began := time.Now()
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(event):
		t.Fatal("the broker does not stop")
	}
	if took := time.Since(began); took >= patience {
		t.Errorf("stopping took %s", took)
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.log)
	}
}
