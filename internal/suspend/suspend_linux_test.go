package suspend

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// The order of it: called, and only when that is done the machine may sleep.
func TestPausesBeforeTheMachineMaySleep(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d)
	w := watch(t, d.socket, func(w *watched) { w.answer = make(chan struct{}) })
	for range 2 { // and again after it has woken
		k := l.lock()
		l.say(true)
		w.called()
		if !k.held() {
			t.Fatal("the lock was given back before the broker had paused")
		}
		w.answer <- struct{}{}
		k.released(t)
		l.say(false)
	}
	l.lock()
	w.notCalled()

	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) != 4 || l.asked[0] != "sleep" || l.asked[1] != "Yett" || l.asked[3] != "delay" {
		t.Errorf("asked for %q", l.asked)
	}
	if n := strings.Count(w.log.String(), "locking before the machine sleeps"); n != 1 {
		t.Errorf("said %d times that all is well:\n%s", n, w.log)
	}
}

// A watcher that comes while the machine falls asleep has missed the signal.
func TestPausesWhenTheMachineIsFallingAsleepAlready(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d, func(l *login) { l.preparing = true })
	w := watch(t, d.socket)
	w.called()
	l.lock().released(t)
}

// Everybody may send signals on the system's bus, also straight to one
// connection, past what it subscribed to.
func TestAttackStrangersSayNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d)
	w := watch(t, d.socket)
	k := l.lock()
	w.log.wait(t, "locking before the machine sleeps")

	stranger := d.connect(t)
	var names []string
	if err := stranger.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "bait"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sent := 0
	for _, name := range names {
		if !strings.HasPrefix(name, ":") || name == l.conn.Names()[0] || name == stranger.Names()[0] {
			continue
		}
		for _, body := range [][]any{{true}, {dbus.UnixFD(file.Fd())}} {
			m := &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldDestination: dbus.MakeVariant(name), dbus.FieldPath: dbus.MakeVariant(object),
				dbus.FieldInterface: dbus.MakeVariant(manager), dbus.FieldMember: dbus.MakeVariant("PrepareForSleep"),
				dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...))}}
			if err := stranger.Send(m, nil).Err; err != nil {
				t.Fatal(err)
			}
			sent++
		}
	}
	if sent == 0 {
		t.Fatal("the watcher has no connection")
	}
	stranger.Emit(object, manager+".PrepareForSleep", true)
	// The bus keeps the order of what it was given, so what logind says after
	// this question comes after all of it.
	if err := stranger.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
	l.say(false) // takes a new lock, and nothing else
	k.released(t)
	k = l.lock()
	w.notCalled()
	if n := open(t, file.Name()); n != 1 { // the test's own
		t.Errorf("the bait is open %d times: a stranger's descriptor stayed", n)
	}
	l.say(true)
	w.called()
	k.released(t)
}

// open counts the descriptors of this process on a file.
func open(t *testing.T, path string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to == path {
			n++
		}
	}
	return n
}

func TestFollowsABusThatDiesAndReturns(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	k := newLogin(t, d)
	w := watch(t, d.socket)
	held := k.lock()
	d.kill()
	held.released(t) // nobody would tell when to give it back
	w.log.wait(t, "noticed only afterwards")

	d.start(t)
	l := newLogin(t, d)
	held = l.lock()
	l.say(true)
	w.called()
	held.released(t)
}

func TestFollowsALogindThatIsReplaced(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	old := newLogin(t, d)
	w := watch(t, d.socket)
	held := old.lock()
	old.say(false) // answered by a new lock: the watcher waits for signals now
	held.released(t)
	held = old.lock()
	w.log.wait(t, "locking before the machine sleeps")
	old.close()
	held.released(t)
	l := newLogin(t, d)
	held = l.lock()
	l.say(true)
	w.called()
	held.released(t)
}

// Without a lock the signal is heard all the same.
func TestV04_LogindThatGivesNoLockHoldsNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d, func(l *login) { l.silent = true })
	w := watch(t, d.socket)
	w.log.wait(t, "does not wait for Yett")
	for w.log.wait(t, "deadline exceeded"); ; {
		l.say(true) // until the watcher listens behind its failed question
		select {
		case <-w.calls:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func TestV04_ABusThatNeverAnswersHoldsNothing(t *testing.T) {
	t.Parallel()
	socket, taken := mute(t)
	w := watch(t, socket)
	c := <-taken
	// Every attempt ends: the watcher closes the connection.
	c.SetReadDeadline(time.Now().Add(event))
	began := time.Now()
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatalf("the watcher keeps a mute connection: %v", err)
	}
	if took := time.Since(began); took > 2*patience {
		t.Errorf("the watcher waited for %s", took)
	}
	w.log.wait(t, "noticed only afterwards")
	<-taken // it tries again
	w.end() // in the middle of the next attempt
	if n := strings.Count(w.log.String(), "noticed only afterwards"); n != 1 {
		t.Errorf("said %d times:\n%s", n, w.log)
	}
}

// A bus that stops in the middle does not hold the watcher's end.
func TestV04_ABusThatStopsHoldsNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d)
	w := watch(t, d.socket)
	k := l.lock()
	w.log.wait(t, "locking before the machine sleeps")
	d.cmd.Process.Signal(syscall.SIGSTOP)
	w.end()
	d.cmd.Process.Signal(syscall.SIGCONT) // the bus may have stopped with a copy of the lock in its hands
	k.released(t)
}

func TestNoBusIsSaidOnce(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "none")
	w := watch(t, socket)
	w.log.wait(t, "noticed only afterwards")
	// A bus that comes later is found, by the attempt after the next at the latest.
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n := strings.Count(w.log.String(), "level=WARN"); n != 1 {
		t.Errorf("complained %d times:\n%s", n, w.log)
	}
}

// A machine may sleep without a word: by /sys/power/state, or without logind.
func TestNoticesASleepThatNobodyAnnounced(t *testing.T) {
	t.Parallel()
	w := watch(t, filepath.Join(t.TempDir(), "none"), func(w *watched) { w.slept = make(chan time.Duration) })
	w.slept <- time.Hour // the machine had slept before there was a broker
	w.slept <- time.Hour
	w.notCalled()
	w.slept <- 2 * time.Hour
	w.called()
	w.slept <- 2 * time.Hour
	w.slept <- 2 * time.Hour
	w.notCalled()
}

// What was announced is not punished twice: the person may have unlocked.
func TestAnAnnouncedSleepPausesOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	l := newLogin(t, d)
	w := watch(t, d.socket, func(w *watched) { w.slept = make(chan time.Duration) })
	w.slept <- 0
	k := l.lock()
	l.say(true)
	w.called()
	k.released(t)
	w.slept <- time.Hour // the clocks show it before logind says that it is over
	l.say(false)
	l.lock()
	w.slept <- time.Hour
	w.slept <- time.Hour
	w.notCalled()
}

func TestClockCountsOnlySleep(t *testing.T) {
	t.Parallel()
	before := asleep()
	time.Sleep(20 * time.Millisecond)
	if d := asleep() - before; d < -10*time.Millisecond || d > 10*time.Millisecond {
		t.Errorf("20 ms awake count as %s asleep", d)
	}
}

func TestEndsAtOnceWhileItWaits(t *testing.T) {
	t.Parallel()
	w := watch(t, filepath.Join(t.TempDir(), "none"))
	w.log.wait(t, "noticed only afterwards")
	w.end()
}
