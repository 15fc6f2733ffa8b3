package notify

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const event = 20 * time.Second // for what must come

// newBus starts a real bus of the test's own and returns its socket.
func newBus(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "c")
	text := `<busconfig><listen>unix:path=` + socket + `</listen><auth>EXTERNAL</auth><policy context="default"><allow user="*"/><allow own="*"/>` +
		`<allow send_destination="*"/><allow send_type="signal"/><allow receive_sender="*"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--config-file="+config, "--nofork", "--nopidfile", "--print-address")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait(); os.RemoveAll(dir) })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal("the bus did not start")
	}
	return socket
}

// shown is one notification as the service got it.
type shown struct {
	Replaces    uint32
	Title, Body string
	Actions     []string
}

// server takes notifications, and opens addresses.
type server struct {
	conn   *dbus.Conn
	notes  chan shown
	closed chan uint32
	opened chan string
}

func (s *server) GetServerInformation() (string, string, string, string, *dbus.Error) {
	return "test", "test", "1", "1.2", nil
}

func (s *server) Notify(_ string, replaces uint32, _, title, body string, actions []string, _ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	s.notes <- shown{replaces, title, body, actions}
	return 7, nil
}

func (s *server) CloseNotification(id uint32) *dbus.Error { s.closed <- id; return nil }

func (s *server) OpenURI(_, uri string, _ map[string]dbus.Variant) (dbus.ObjectPath, *dbus.Error) {
	s.opened <- uri
	return "/x", nil
}

func connect(t *testing.T, bus string) *dbus.Conn {
	t.Helper()
	c, err := dbus.Connect("unix:path="+bus, dbus.WithAuth(dbus.AuthExternal(fmt.Sprint(os.Geteuid()))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newServer(t *testing.T, bus string) *server {
	t.Helper()
	s := &server{conn: connect(t, bus), notes: make(chan shown, 8), closed: make(chan uint32, 8), opened: make(chan string, 64)}
	s.conn.Export(s, object, service)
	s.conn.Export(s, portalAt, "org.freedesktop.portal.OpenURI")
	for _, name := range []string{service, portal} {
		if r, err := s.conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
			t.Fatalf("taking the name %s: %v %v", name, r, err)
		}
	}
	return s
}

// queue is what waits, in a test.
type queue struct {
	mu      sync.Mutex
	now     Waiting
	changed chan struct{}
	reached chan bool
}

func (q *queue) set(w Waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.now = w
	close(q.changed)
	q.changed = make(chan struct{})
}

func watch(t *testing.T, bus string) *queue {
	t.Helper()
	q := &queue{changed: make(chan struct{}), reached: make(chan bool, 8)}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watch(ctx, bus, slog.New(slog.NewTextHandler(io.Discard, nil)), Source{
			Changed: func() <-chan struct{} { q.mu.Lock(); defer q.mu.Unlock(); return q.changed },
			Waiting: func() Waiting { q.mu.Lock(); defer q.mu.Unlock(); return q.now },
			Reached: func() func() { q.reached <- true; return func() { q.reached <- false } }})
	}()
	t.Cleanup(func() {
		end()
		select {
		case <-ended:
		case <-time.After(event):
			t.Error("the watcher did not end")
		}
	})
	return q
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(event):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// TestP10_ANotificationOpensThePageAndDecidesNothing: it says two words and names,
// is replaced rather than multiplied, is taken away when nothing waits, and its
// one action opens the page.
func TestP10_ANotificationOpensThePageAndDecidesNothing(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	s := newServer(t, bus)
	q := watch(t, bus)
	if !await(t, q.reached, "the desktop") {
		t.Fatal("not reached")
	}
	q.set(Waiting{Count: 1, ID: "a_1", Tag: "amber otter", What: "http:x <b>", URL: "http://localhost:1/#waiting/a_1"})
	n := await(t, s.notes, "the notification")
	if n.Title != "An agent asks" || n.Body != "amber otter: http:x &lt;b&gt;" || len(n.Actions) != 2 {
		t.Errorf("%+v", n)
	}
	stranger := connect(t, bus) // anybody may send a signal
	for range 20 {
		stranger.Emit(object, service+".ActionInvoked", uint32(7), "default")
	}
	if err := stranger.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil { // the bus has passed them on
		t.Fatal(err)
	}
	s.conn.Emit(object, service+".ActionInvoked", uint32(8), "default")
	s.conn.Emit(object, service+".ActionInvoked", uint32(7), "default")
	if url := await(t, s.opened, "the page"); url != "http://localhost:1/#waiting/a_1" {
		t.Errorf("opened %s", url)
	}
	q.set(Waiting{Count: 3, ID: "a_1", Tag: "amber otter", What: "http:x", URL: "http://localhost:1/#waiting/a_2"})
	if n := await(t, s.notes, "the second"); n.Replaces != 7 || n.Title != "3 cards wait" {
		t.Errorf("%+v", n)
	}
	// Signals are heard in their order: one that opened the page for somebody else
	// would stand before this one.
	s.conn.Emit(object, service+".ActionInvoked", uint32(7), "default")
	if url := await(t, s.opened, "the page again"); url != "http://localhost:1/#waiting/a_2" {
		t.Errorf("a signal of somebody else opened %s", url)
	}
	q.set(Waiting{})
	if id := await(t, s.closed, "the end"); id != 7 {
		t.Errorf("closed %d", id)
	}
	select {
	case u := <-s.opened:
		t.Errorf("a signal of somebody else opened %s", u)
	default:
	}
}

// TestP10_ABusWithoutADesktop: a bus on which nobody takes notifications, one that
// does not answer, and none at all hold nobody up.
func TestP10_ABusWithoutADesktop(t *testing.T) {
	t.Parallel()
	for name, bus := range map[string]string{"nobody there": newBus(t), "no bus": "/nonexistent/bus"} {
		began := time.Now()
		if d, err := reach(context.Background(), bus); err == nil {
			d.close()
			t.Errorf("%s: reached", name)
		}
		if took := time.Since(began); took > 3*patience {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

// TestTheDesktopGoesAndComes: when the service ends that is noticed, so that
// nobody counts on a desktop that is not there.
func TestTheDesktopGoesAndComes(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	s := newServer(t, bus)
	q := watch(t, bus)
	if !await(t, q.reached, "the desktop") {
		t.Fatal("not reached")
	}
	s.conn.Close()
	if await(t, q.reached, "its end") {
		t.Fatal("still reached")
	}
}
