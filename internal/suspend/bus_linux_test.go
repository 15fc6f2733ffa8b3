package suspend

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const event = 20 * time.Second // for what must come

// daemon is a real bus of the test's own.
type daemon struct {
	socket string
	config string
	cmd    *exec.Cmd
}

// policy is what the system's bus allows: signals from everybody to everybody.
const policy = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
  </policy>
</busconfig>
`

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{socket: filepath.Join(dir, "s"), config: filepath.Join(dir, "c")}
	t.Cleanup(func() {
		d.kill()
		os.RemoveAll(dir)
	})
	if err := os.WriteFile(d.config, fmt.Appendf(nil, policy, d.socket), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start(t)
	return d
}

// start returns when the bus takes connections.
func (d *daemon) start(t *testing.T) {
	t.Helper()
	os.Remove(d.socket)
	d.cmd = exec.Command("dbus-daemon", "--config-file="+d.config, "--nofork", "--nopidfile", "--print-address")
	var complaint bytes.Buffer
	d.cmd.Stderr = &complaint
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		d.kill()
		t.Fatalf("the bus did not start: %v\n%s", err, complaint.String())
	}
}

func (d *daemon) kill() {
	if d.cmd != nil {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		d.cmd = nil
	}
}

func (d *daemon) connect(t *testing.T) *dbus.Conn {
	t.Helper()
	c, err := dbus.Connect("unix:path="+d.socket, dbus.WithAuth(dbus.AuthExternal(fmt.Sprint(os.Geteuid()))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// login is logind as far as the watcher speaks with it. It answers by hand, so
// that it can close its own copy of a lock as soon as the answer is sent.
type login struct {
	t      *testing.T
	conn   *dbus.Conn
	locks  chan *lock // each lock that was taken
	silent bool       // asks for locks are not answered

	mu        sync.Mutex
	preparing bool
	asked     []any // the arguments of the last ask for a lock
}

// lock is logind's end of a delay lock.
type lock struct{ pipe *os.File }

func newLogin(t *testing.T, d *daemon, change ...func(*login)) *login {
	t.Helper()
	l := &login{t: t, conn: d.connect(t), locks: make(chan *lock, 16)}
	for _, c := range change {
		c(l)
	}
	if r, err := l.conn.RequestName(logind, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("taking the name: %v %v", r, err)
	}
	messages := make(chan *dbus.Message, 64)
	l.conn.Eavesdrop(messages)
	t.Cleanup(l.close)
	go func() {
		for {
			select {
			case m, ok := <-messages:
				if !ok { // the bus has died
					return
				}
				if m.Type == dbus.TypeMethodCall {
					l.answer(m)
				}
			case <-t.Context().Done():
				return
			}
		}
	}()
	return l
}

// close leaves the bus. It takes the channel back first: the library closes it
// while a message may still be on its way into it.
func (l *login) close() {
	l.conn.Eavesdrop(nil)
	l.conn.Close()
}

func (l *login) answer(m *dbus.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reply := func(body ...any) {
		l.conn.Send(&dbus.Message{Type: dbus.TypeMethodReply, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()),
			dbus.FieldDestination: m.Headers[dbus.FieldSender],
			dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body...)),
		}}, nil)
	}
	switch m.Headers[dbus.FieldMember].Value() {
	case "Inhibit":
		l.asked = m.Body
		if l.silent {
			return
		}
		r, w, err := os.Pipe()
		if err != nil {
			l.t.Error(err)
			return
		}
		reply(dbus.UnixFD(w.Fd()))
		w.Close()
		l.locks <- &lock{r}
	case "Get":
		reply(dbus.MakeVariant(l.preparing))
	}
}

// lock waits until a lock is taken.
func (l *login) lock() *lock {
	l.t.Helper()
	select {
	case k := <-l.locks:
		l.t.Cleanup(func() { k.pipe.Close() })
		return k
	case <-time.After(event):
		l.t.Fatal("no lock was taken")
		return nil
	}
}

func (l *login) say(sleeping bool) {
	l.t.Helper()
	if err := l.conn.Emit(object, manager+".PrepareForSleep", sleeping); err != nil {
		l.t.Fatal(err)
	}
}

// released waits until the lock is given back.
func (k *lock) released(t *testing.T) {
	t.Helper()
	k.pipe.SetReadDeadline(time.Now().Add(event))
	if n, err := k.pipe.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Fatalf("the lock was not given back: %v", err)
	}
}

// held reports whether the lock is still held.
func (k *lock) held() bool {
	raw, err := k.pipe.SyscallConn()
	if err != nil {
		return false
	}
	events := -1
	raw.Control(func(fd uintptr) {
		events, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	})
	return events == 0 && err == nil
}

// watched is a watcher at work.
type watched struct {
	t      *testing.T
	calls  chan struct{} // each call of before
	answer chan struct{} // what before waits for, if it is not nil
	ended  chan struct{}
	cancel context.CancelFunc
	log    *journal
	slept  chan time.Duration // sets the clock
}

func watch(t *testing.T, bus string, change ...func(*watched)) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{t: t, calls: make(chan struct{}, 16), ended: make(chan struct{}), cancel: cancel, log: newJournal()}
	for _, c := range change {
		c(w)
	}
	before := func() {
		w.calls <- struct{}{}
		if w.answer != nil {
			<-w.answer
		}
	}
	go func() {
		defer close(w.ended)
		log := slog.New(slog.NewTextHandler(w.log, nil))
		if w.slept == nil {
			Watch(ctx, Options{Bus: bus, Log: log, Sleep: before})
			return
		}
		b := &busWatcher{watcher: newWatcher(Options{Log: log, Sleep: before}), bus: bus}
		b.clock = w.clock(ctx)
		b.run(ctx)
	}()
	t.Cleanup(w.end)
	return w
}

// clock shows what the test set last. It waits for the first time: what the
// watcher begins with must not depend on who comes first.
func (w *watched) clock(ctx context.Context) func() time.Duration {
	var now time.Duration
	begun := false
	return func() time.Duration {
		if !begun {
			begun = true
			select {
			case now = <-w.slept:
			case <-ctx.Done():
			}
			return now
		}
		select {
		case now = <-w.slept:
		default:
		}
		return now
	}
}

// end ends the watcher, which must not take long, whatever the bus does.
func (w *watched) end() {
	w.t.Helper()
	w.cancel()
	began := time.Now()
	select {
	case <-w.ended:
	case <-time.After(event):
		w.t.Fatal("the watcher does not end")
	}
	if took := time.Since(began); took > time.Second {
		w.t.Errorf("ending took %s", took)
	}
}

func (w *watched) called() {
	w.t.Helper()
	select {
	case <-w.calls:
	case <-time.After(event):
		w.t.Fatalf("before was not called; log:\n%s", w.log)
	}
}

func (w *watched) notCalled() {
	w.t.Helper()
	select {
	case <-w.calls:
		w.t.Fatalf("before was called; log:\n%s", w.log)
	default:
	}
}

// journal keeps a log and can wait for a text in it.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newJournal() *journal { return &journal{more: make(chan struct{}, 1)} }

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case j.more <- struct{}{}:
	default:
	}
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) wait(t *testing.T, text string) {
	t.Helper()
	late := time.After(event)
	for !strings.Contains(j.String(), text) {
		select {
		case <-j.more:
		case <-late:
			t.Fatalf("the log does not say %q:\n%s", text, j)
		}
	}
}

// mute is a bus that takes connections and never says a word. It counts them.
func mute(t *testing.T) (socket string, taken chan net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	taken = make(chan net.Conn, 64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken <- c
		}
	}()
	return socket, taken
}
