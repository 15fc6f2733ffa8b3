//go:build linux

package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	runDir = "home/run"
	sock   = "home/run/broker.sock"
)

func perm(t *testing.T, path string) os.FileMode {
	t.Helper()
	st, err := os.Lstat(path)
	must(t, err)
	return st.Mode().Perm()
}

func TestU12_ModesUnderEveryUmask(t *testing.T) {
	for _, umask := range []string{"000", "022", "077", "0777"} {
		t.Run(umask, func(t *testing.T) {
			w := newWorld(t)
			c := w.start("bin/yett", "as-serve", []string{w.path("home/a/b"), umask})
			c.expect("listening")
			for path, want := range map[string]os.FileMode{
				"home/a": 0o700, "home/a/b": 0o700, "home/a/b/run": 0o700,
				"home/a/b/run/broker.sock": 0o600, "home/a/b/run/broker.lock": 0o600,
				"home/a/b/run/broker.state": 0o600, "home/a/b/broker.lock": 0o600,
			} {
				if got := perm(t, w.path(path)); got != want {
					t.Errorf("%s has mode %04o, want %04o", path, got, want)
				}
			}
			w.start("bin/yett", "as-dial", []string{w.path("home/a/b")}).expect("dialled")
			if s := c.end(); s.Error != "" {
				t.Errorf("closing: %s", s.Error)
			}
		})
	}
}

// While brokers come and go, and make their directories anew, nothing that
// they make is ever open to others, and the process's umask stays what it was.
func TestU12_NoWiderModeAtAnyMoment(t *testing.T) {
	for _, umask := range []string{"000", "077"} {
		t.Run(umask, func(t *testing.T) {
			w := newWorld(t)
			stop := make(chan struct{})
			var watching sync.WaitGroup
			watching.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if wide := widest(w.path("home"), w.path(runDir)); wide != "" {
						t.Error(wide)
						return
					}
				}
			})
			s := w.start("bin/yett", "as-churn", []string{w.path("home"), umask}).next()
			close(stop)
			watching.Wait()
			if s.Event != "closed" || s.Error != "" {
				t.Errorf("churning: %+v", s)
			}
		})
	}
}

// widest names something in the directories that others could use.
func widest(dirs ...string) string {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			st, err := e.Info()
			if err != nil || e.Name() == "bystander" {
				continue
			}
			if st.Mode().Perm()&0o077 != 0 || e.Name() == "run" && st.Mode().Perm() != 0o700 {
				return fmt.Sprintf("%s has mode %04o", e.Name(), st.Mode().Perm())
			}
		}
	}
	return ""
}

// Whatever stands in the way is refused by its reason and left as it is, by
// the broker and by the client.
func TestC02_RefusedAndUntouched(t *testing.T) {
	socketAt := func(w *world, name string) {
		w.deadSocket(name)
	}
	private := func(w *world) { w.own(runDir) }
	tests := []struct {
		name    string
		root    bool
		make    func(w *world)
		guarded string // what must stay as it is
		at      string // what the refusal names
		why     string
		dials   Cause // what a client says; empty: as the broker, unsafe
	}{
		{"symlink node", false, func(w *world) {
			private(w)
			socketAt(w, "home/elsewhere")
			must(w.t, os.Symlink(w.path("home/elsewhere"), w.path(sock)))
		}, sock, sock, "symbolic link", ""},
		{"regular file", false, func(w *world) {
			private(w)
			must(w.t, os.WriteFile(w.path(sock), []byte("kept"), 0o600))
			w.give(sock, w.uid)
		}, sock, sock, "regular file", ""},
		{"directory", false, func(w *world) { private(w); w.own(sock) }, sock, sock, "directory", ""},
		{"named pipe", false, func(w *world) {
			private(w)
			must(w.t, unix.Mkfifo(w.path(sock), 0o600))
			w.give(sock, w.uid)
		}, sock, sock, "named pipe", ""},
		{"foreign socket", true, func(w *world) {
			private(w)
			w.deadSocket(sock)
			w.give(sock, otherUID)
		}, sock, sock, "uid 61002", ""},
		{"symlinked private directory", false, func(w *world) {
			w.own("elsewhere")
			must(w.t, os.Symlink(w.path("elsewhere"), w.path(runDir)))
		}, runDir, runDir, "symbolic link", ""},
		{"foreign private directory", true, func(w *world) { private(w); w.give(runDir, otherUID) }, runDir, runDir, "uid 61002", ""},
		{"root's private directory", true, func(w *world) { private(w); w.give(runDir, 0) }, runDir, runDir, "belongs to uid 0", ""},
		{"readable private directory", false, func(w *world) {
			private(w)
			must(w.t, os.Chmod(w.path(runDir), 0o750))
		}, runDir, runDir, "0750", ""},
		{"symlinked home", false, func(w *world) {
			w.own("elsewhere")
			must(w.t, os.Remove(w.path("home")))
			must(w.t, os.Symlink(w.path("elsewhere"), w.path("home")))
		}, "home", "home", "symbolic link", ""},
		{"group-writable home", false, func(w *world) { private(w); must(w.t, os.Chmod(w.path("home"), 0o770)) }, "home", "home", "others can write", ""},
		{"home open to all", false, func(w *world) { private(w); must(w.t, os.Chmod(w.path("home"), 0o777)) }, "home", "home", "others can write", ""},
		{"foreign sticky home", true, func(w *world) {
			private(w)
			w.give("home", otherUID)
			must(w.t, unix.Chmod(w.path("home"), 0o1777))
		}, "home", "home", "uid 61002", ""},
		{"own sticky home open to all", false, func(w *world) { private(w); must(w.t, unix.Chmod(w.path("home"), 0o1777)) }, "home", "home", "others can write", ""},
		{"symlinked lock", false, func(w *world) {
			private(w)
			must(w.t, os.WriteFile(w.path("home/victim"), []byte("kept"), 0o600))
			w.give("home/victim", w.uid)
			must(w.t, os.Symlink(w.path("home/victim"), w.path(runDir+"/broker.lock")))
		}, "home/victim", runDir + "/broker.lock", "symbolic link", NotRunning},
		{"named pipe as lock", false, func(w *world) {
			private(w)
			must(w.t, unix.Mkfifo(w.path(runDir+"/broker.lock"), 0o600))
			w.give(runDir+"/broker.lock", w.uid)
		}, runDir + "/broker.lock", runDir + "/broker.lock", "named pipe", NotRunning},
		{"lock open to all", false, func(w *world) {
			private(w)
			must(w.t, os.WriteFile(w.path(runDir+"/broker.lock"), nil, 0o600))
			must(w.t, os.Chmod(w.path(runDir+"/broker.lock"), 0o666))
			w.give(runDir+"/broker.lock", w.uid)
		}, runDir + "/broker.lock", runDir + "/broker.lock", "others can write", NotRunning},
		{"symlinked state", false, func(w *world) {
			private(w)
			must(w.t, os.WriteFile(w.path("home/victim"), []byte("kept"), 0o600))
			w.give("home/victim", w.uid)
			must(w.t, os.Symlink(w.path("home/victim"), w.path(runDir+"/broker.state")))
		}, "home/victim", runDir + "/broker.state", "symbolic link", NotRunning},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.root {
				needsRoot(t)
			}
			w := newWorld(t)
			test.make(w)
			check := w.untouched(w.path(test.guarded))
			s := w.serve(w.path("home")).expect("failed")
			if s.Kind != "unsafe" || s.Path != w.path(test.at) || !strings.Contains(s.Error, test.why) {
				t.Errorf("broker said %+v, want unsafe %s: …%s…", s, w.path(test.at), test.why)
			}
			want := Unsafe
			if test.dials != "" {
				want = test.dials
			}
			d := w.start("bin/yett", "as-dial", []string{w.path("home")}).expect("dialled")
			if d.Cause != want {
				t.Errorf("client said %+v, want %s", d, want)
			}
			check()
		})
	}
}

func TestC02_LiveForeignSocketUntouched(t *testing.T) {
	for _, mode := range []string{"as-fake", "as-fake-full"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			w.own(runDir)
			fake := w.start("bin/other", mode, []string{w.path(sock)})
			pid := fake.expect("listening").PID
			check := w.untouched(w.path(sock))
			s := w.serve(w.path("home")).expect("failed")
			if s.Kind != "unsafe" || s.Path != w.path(sock) {
				t.Errorf("broker said %+v, want unsafe", s)
			}
			if mode == "as-fake" && !strings.Contains(s.Error, fmt.Sprintf("process %d (%s)", pid, w.path("bin/other"))) {
				t.Errorf("broker said %q, which does not name process %d", s.Error, pid)
			}
			check()
		})
	}
}

// A dead socket beside a broker that lives without its lock (a cleaner took
// the file) is not taken for that broker's leftover.
func TestC02_UnrecordedSocketBesideLivingHolder(t *testing.T) {
	w := newWorld(t)
	first := w.serve(w.path("home"))
	first.expect("listening")
	for _, name := range []string{sock, runDir + "/broker.lock", "home/broker.lock"} {
		must(t, os.Remove(w.path(name)))
	}
	w.deadSocket(sock)
	check := w.untouched(w.path(sock))
	if s := w.serve(w.path("home")).expect("failed"); s.Kind != "unsafe" || !strings.Contains(s.Error, "still runs") {
		t.Errorf("second broker said %+v", s)
	}
	check()
	first.kill()
	w.serve(w.path("home")).expect("listening")
}

func TestC08_ExitLeavesStranger(t *testing.T) {
	strangers := map[string]func(w *world){
		"socket":       func(w *world) { w.deadSocket(sock) },
		"regular file": func(w *world) { must(w.t, os.WriteFile(w.path(sock), []byte("kept"), 0o600)) },
		"symlink":      func(w *world) { must(w.t, os.Symlink("elsewhere", w.path(sock))) },
	}
	for name, put := range strangers {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.serve(w.path("home"))
			c.expect("listening")
			must(t, os.Remove(w.path(sock)))
			put(w)
			check := w.untouched(w.path(sock))
			if s := c.end(); s.Kind != "unsafe" || !strings.Contains(s.Error, "another object") {
				t.Errorf("closing said %+v", s)
			}
			check()
		})
	}
}

func TestC08_ExitRemovesOwnAndOnlyThat(t *testing.T) {
	w := newWorld(t)
	c := w.serve(w.path("home"))
	s := c.expect("listening")
	if dev, ino := w.inode(w.path(sock)); dev != s.Dev || ino != s.Ino {
		t.Errorf("path is %d:%d, the listener's node %d:%d", dev, ino, s.Dev, s.Ino)
	}
	if s := c.end(); s.Error != "" {
		t.Errorf("closing: %s", s.Error)
	}
	names, err := os.ReadDir(w.path(runDir))
	must(t, err)
	if len(names) != 1 || names[0].Name() != lockName {
		t.Errorf("after a clean end the directory holds %v", names)
	}
}

// A node that took the path after the first look is put back.
func TestC08_StrangerAfterTheFirstLook(t *testing.T) {
	w := newWorld(t)
	w.uid = os.Getuid()
	d, err := openPrivate(w.own("private"), w.uid, false)
	must(t, err)
	defer d.close()
	must(t, os.WriteFile(d.join("ours"), nil, 0o600))
	st, err := d.stat("ours")
	must(t, err)
	must(t, os.WriteFile(d.join("stranger"), []byte("kept"), 0o600))
	must(t, os.Rename(d.join("stranger"), d.join("ours")))
	var unsafe *UnsafeError
	if err := d.removeAside("ours", identityOf(&st)); !errors.As(err, &unsafe) {
		t.Errorf("removing what is not ours: %v", err)
	}
	if b, err := os.ReadFile(d.join("ours")); err != nil || string(b) != "kept" {
		t.Errorf("the stranger is lost: %q, %v", b, err)
	}
	if names, err := d.names(); err != nil || len(names) != 1 {
		t.Errorf("the directory holds %v, %v", names, err)
	}
}

// A lock on a file that is no longer at the name locks nobody out.
func TestU01_LockOnARemovedFileIsNone(t *testing.T) {
	w := newWorld(t)
	w.uid = os.Getuid()
	d, err := openPrivate(w.own("private"), w.uid, false)
	must(t, err)
	defer d.close()
	for _, replace := range []bool{false, true} {
		f, err := openLock(d)
		must(t, err)
		must(t, os.Remove(d.join(lockName)))
		if replace {
			g, err := openLock(d)
			must(t, err)
			g.Close()
		}
		if err := d.seize(f); !errors.Is(err, errReplaced) {
			t.Errorf("seizing a file that is gone: %v", err)
		}
		f.Close()
	}
}

func TestC02_PlaceTakesNoName(t *testing.T) {
	w := newWorld(t)
	w.uid = os.Getuid()
	d, err := openPrivate(w.own("private"), w.uid, false)
	must(t, err)
	defer d.close()
	for name, place := range map[string]func(tmp, name string) error{"rename": d.place, "link": d.placeByLink} {
		must(t, os.WriteFile(d.join("taken"), []byte("kept"), 0o600))
		must(t, os.WriteFile(d.join("tmp"), []byte("new"), 0o600))
		if err := place("tmp", "taken"); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: placing on a taken name: %v", name, err)
		}
		if b, _ := os.ReadFile(d.join("taken")); string(b) != "kept" {
			t.Errorf("%s: the taken name now holds %q", name, b)
		}
		if err := place("tmp", "free"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(d.join("tmp")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the temporary name is still there: %v", name, err)
		}
		must(t, os.Remove(d.join("free")))
	}
}

func TestC07_SecondBrokerNamesTheFirst(t *testing.T) {
	w := newWorld(t)
	first := w.serve(w.path("home"))
	pid := first.expect("listening").PID
	check := w.untouched(w.path(sock))
	s := w.serve(w.path("home")).expect("failed")
	want := Holder{PID: pid, Executable: w.path("bin/yett")}
	if s.Kind != "in-use" || !s.Answering || s.Holder != want || s.Path != w.path(runDir+"/broker.lock") {
		t.Errorf("second broker said %+v, want in use by %v, answering", s, want)
	}
	check()
	d := w.start("bin/yett", "as-dial", []string{w.path("home")})
	d.expect("dialled")
	if r := d.expect("read"); r.Bytes != "hello\n" {
		t.Errorf("the first broker answered %+v", r)
	}
}

// A broker that shut its /proc is named all the same, by its own record.
func TestC07_HiddenHolderIsNamed(t *testing.T) {
	w := newWorld(t)
	pid := w.start("bin/yett", "as-serve-hidden", []string{w.path("home")}).expect("listening").PID
	s := w.serve(w.path("home")).expect("failed")
	if want := (Holder{PID: pid, Executable: w.path("bin/yett")}); s.Holder != want || !s.Answering {
		t.Errorf("second broker said %+v, want in use by %v", s, want)
	}
}

// Two socket paths, as when a runtime directory came or went between two
// logins, do not make two brokers of one vault.
func TestU05_OneBrokerForOneHome(t *testing.T) {
	w := newWorld(t)
	first := w.serve(w.path("home"))
	pid := first.expect("listening").PID
	w.own("runtime")
	elsewhere := w.path("runtime/broker.sock")
	s := w.start("bin/yett", "as-serve", []string{w.path("home"), "022", elsewhere}).expect("failed")
	if s.Kind != "in-use" || s.Path != w.path("home/broker.lock") || s.Holder.PID != pid || !s.Answering {
		t.Errorf("second broker said %+v, want in use by process %d, answering", s, pid)
	}
	if _, err := os.Lstat(elsewhere); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left a socket: %v", err)
	}
	first.end()
	w.start("bin/yett", "as-serve", []string{w.path("home"), "022", elsewhere}).expect("listening")
}

func TestU02_StoppedBrokerIsNotDead(t *testing.T) {
	w := newWorld(t)
	first := w.serve(w.path("home"))
	pid := first.expect("listening").PID
	first.stop()
	check := w.untouched(w.path(sock))
	second := w.serve(w.path("home"))
	s := second.expect("failed")
	if s.Kind != "in-use" || s.Answering || s.Holder.PID != pid || !strings.Contains(s.Error, "running but not answering") {
		t.Errorf("second broker said %+v", s)
	}
	if err := second.cmd.Wait(); err == nil {
		t.Error("the second broker exited with 0")
	}
	check()
	must(t, first.cmd.Process.Signal(syscall.SIGCONT))
	d := w.start("bin/yett", "as-dial", []string{w.path("home")})
	d.expect("dialled")
	if r := d.expect("read"); r.Bytes != "hello\n" {
		t.Errorf("the woken broker answered %+v", r)
	}
	if s := w.serve(w.path("home")).expect("failed"); !s.Answering {
		t.Errorf("of the woken broker a third one said %+v", s)
	}
}

func TestU01_KilledBrokerLeavesAWorkingPath(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		c := w.serve(w.path("home"))
		c.expect("listening")
		c.kill()
		if s := w.start("bin/yett", "as-dial", []string{w.path("home")}).expect("dialled"); s.Cause != Stale || s.TookMS > 200 {
			t.Errorf("after the kill a client said %+v", s)
		}
	}
	w.serve(w.path("home")).expect("listening")
}

func TestU01_CrashBetweenStepsLeavesNoTrace(t *testing.T) {
	w := newWorld(t)
	w.own(runDir)
	for _, name := range []string{".sabcdefgh1", ".sabcdefgh7z"} {
		must(t, os.WriteFile(w.path(runDir+"/"+name), nil, 0o600))
		w.give(runDir+"/"+name, w.uid)
	}
	w.deadSocket(runDir + "/.babcdefghi")
	live := w.start("bin/other", "as-fake", []string{w.path(runDir + "/.bzyxwvutsr")})
	live.expect("listening")
	must(t, os.WriteFile(w.path(runDir+"/notes"), nil, 0o600))
	must(t, os.WriteFile(w.path(runDir+"/.bqqqqqqqqq"), nil, 0o600))
	must(t, os.WriteFile(w.path(runDir+"/.sabcdefghi"), nil, 0o600))
	w.serve(w.path("home")).expect("listening")
	var left []string
	names, err := os.ReadDir(w.path(runDir))
	must(t, err)
	for _, e := range names {
		left = append(left, e.Name())
	}
	want := ".bqqqqqqqqq .bzyxwvutsr .sabcdefgh1 .sabcdefgh7z broker.lock broker.sock broker.state notes"
	if got := strings.Join(left, " "); got != want {
		t.Errorf("left:\n%s\nwant:\n%s", got, want)
	}
}

// rounds is how often something is tried: many times where YETT_LONG is set.
func rounds(few, many int) int {
	if os.Getenv("YETT_LONG") != "" {
		return many
	}
	return few
}

// Twenty starters over one dead socket, again and again: one serves, and the
// path is its listener.
func TestU01_TwentyStartersOneServes(t *testing.T) {
	w := newWorld(t)
	w.uid = os.Getuid()
	w.own("mine")
	w.own("mine/run")
	l, err := InHome(w.path("mine"))
	must(t, err)
	for round := range rounds(50, 200) {
		if _, err := os.Lstat(l.Socket); errors.Is(err, os.ErrNotExist) {
			w.deadSocket("mine/run/broker.sock")
		}
		results := make(chan any, 20)
		begin := make(chan struct{})
		for range 20 {
			go func() {
				<-begin
				ln, err := Listen(l)
				if err != nil {
					results <- err
					return
				}
				go serveHello(ln)
				results <- ln
			}()
		}
		close(begin)
		var serving *Listener
		for range 20 {
			switch r := (<-results).(type) {
			case *Listener:
				if serving != nil {
					t.Fatalf("round %d: two serve", round)
				}
				serving = r
			case error:
				var inUse *InUseError
				if !errors.As(r, &inUse) || !inUse.Answering {
					t.Fatalf("round %d: a starter failed with %v", round, r)
				}
			}
		}
		if serving == nil {
			t.Fatalf("round %d: nobody serves", round)
		}
		wantDev, wantIno := serving.Node()
		if dev, ino := w.inode(l.Socket); dev != wantDev || ino != wantIno {
			t.Fatalf("round %d: the path is not the listener's", round)
		}
		c, err := net.DialTimeout("unix", l.Socket, time.Second)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c.Close()
		if round%2 == 0 {
			serving.SetUnlinkOnClose(false) // the next round starts over a real leftover
		}
		must(t, serving.Close())
	}
}

// The same with processes, the winner killed each time.
func TestU01_TwentyProcessesOneServes(t *testing.T) {
	w := newWorld(t)
	w.own(runDir)
	w.deadSocket(sock)
	for round := range rounds(3, 200) {
		starters := make([]*child, 20)
		for i := range starters {
			starters[i] = w.serve(w.path("home"))
		}
		var winner *child
		for _, c := range starters {
			switch s := c.next(); {
			case s.Event == "listening" && winner == nil:
				winner = c
				if dev, ino := w.inode(w.path(sock)); dev != s.Dev || ino != s.Ino {
					t.Fatalf("round %d: the path is not the listener's", round)
				}
			case s.Event == "listening":
				t.Fatalf("round %d: two serve", round)
			case s.Kind != "in-use":
				t.Fatalf("round %d: a starter said %+v", round, s)
			}
		}
		if winner == nil {
			t.Fatalf("round %d: nobody serves", round)
		}
		winner.kill()
	}
}

func TestSocketPathLength(t *testing.T) {
	w := newWorld(t)
	room := maxPath - len(w.path("home")+"/") - len("/run/broker.sock")
	fits, long := w.path("home/"+strings.Repeat("d", room)), w.path("home/"+strings.Repeat("d", room+1))

	w.serve(fits).expect("listening")
	w.start("bin/yett", "as-dial", []string{fits}).expect("dialled")

	l, err := InHome(long)
	must(t, err)
	var tooLong *PathTooLongError
	if err := l.Check(); !errors.As(err, &tooLong) || tooLong.Length != maxPath+1 || tooLong.Limit != maxPath {
		t.Errorf("Check: %v", err)
	}
	if s := w.serve(long).expect("failed"); s.Kind != "too-long" || s.Path != filepath.Join(long, "run/broker.sock") {
		t.Errorf("Listen said %+v", s)
	}
	if s := w.start("bin/yett", "as-dial", []string{long}).expect("dialled"); s.Cause != Unsafe || !strings.Contains(s.Error, "108 bytes") {
		t.Errorf("Dial said %+v", s)
	}
	if _, err := os.Lstat(long); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was made all the same: %v", err)
	}
}
