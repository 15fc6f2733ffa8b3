//go:build linux

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func (w *world) dial(program string, options ...option) *child {
	w.t.Helper()
	return w.start(program, "as-dial", []string{w.path("home")}, options...)
}

func TestC03_BrokerProvesItself(t *testing.T) {
	w := newWorld(t)
	pid := w.serve(w.path("home")).expect("listening").PID
	for _, program := range []string{"bin/yett", "bin/yett-mcp"} {
		d := w.dial(program)
		if s := d.expect("dialled"); s.Error != "" || s.PID != pid || s.Hidden || s.Replaced {
			t.Errorf("%s said %+v, want process %d", program, s, pid)
		}
		if s := d.expect("read"); s.Bytes != "hello\n" {
			t.Errorf("%s read %+v", program, s)
		}
	}
}

func TestC03_HiddenBrokerIsSaid(t *testing.T) {
	w := newWorld(t)
	w.own(runDir)
	w.deadSocket(sock) // a broker that shut its /proc still proves a leftover
	w.start("bin/yett", "as-serve-hidden", []string{w.path("home")}).expect("listening")
	d := w.dial("bin/yett-mcp")
	if s := d.expect("dialled"); s.Error != "" || !s.Hidden {
		t.Errorf("dialling said %+v, want hidden", s)
	}
	if s := d.expect("read"); s.Bytes != "hello\n" {
		t.Errorf("read %+v", s)
	}
}

func TestC03_UpdatedBrokerIsSaid(t *testing.T) {
	w := newWorld(t)
	w.serve(w.path("home")).expect("listening")
	w.install("bin/new")
	must(t, os.Rename(w.path("bin/new"), w.path("bin/yett")))
	d := w.dial("bin/yett-mcp")
	if s := d.expect("dialled"); s.Error != "" || !s.Replaced {
		t.Errorf("dialling said %+v, want replaced", s)
	}
	if s := d.expect("read"); s.Bytes != "hello\n" {
		t.Errorf("read %+v", s)
	}
}

// Whoever listens without being our broker is refused and sent nothing.
func TestU10_FakeBrokerGetsNoByte(t *testing.T) {
	tests := []struct {
		name string
		root bool
		fake string // program that listens
		uid  int    // 0: the account's own
		why  string
	}{
		{"another program", false, "bin/other", 0, "bin/other"},
		{"same name elsewhere", false, "elsewhere/yett", 0, "elsewhere/yett"},
		{"another account", true, "bin/yett", otherUID, "uid 61002"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.root {
				needsRoot(t)
			}
			w := newWorld(t)
			must(t, os.Mkdir(w.path("elsewhere"), 0o755))
			w.install("elsewhere/yett")
			w.own(runDir)
			uid := w.uid
			if test.uid != 0 {
				uid = test.uid
			}
			w.own("theirs")
			w.give("theirs", uid)
			fake := w.start(test.fake, "as-fake", []string{w.path("theirs/s")}, asUID(uid))
			pid := fake.expect("listening").PID
			// However it got there, the node looks right.
			must(t, os.Rename(w.path("theirs/s"), w.path(sock)))
			w.give(sock, w.uid)

			s := w.dial("bin/yett-mcp").expect("dialled")
			if s.Cause != Imposter || !strings.Contains(s.Error, test.why) || !strings.Contains(s.Error, fmt.Sprint("process ", pid)) {
				t.Errorf("dialling said %+v, want an imposter named %s", s, test.why)
			}
			if got := fake.expect("got"); got.Bytes != "" {
				t.Errorf("the fake was sent %q", got.Bytes)
			}
		})
	}
}

func TestU10_NothingInstalledToCompareWith(t *testing.T) {
	w := newWorld(t)
	must(t, os.Mkdir(w.path("lonely"), 0o755))
	w.install("lonely/yett-mcp")
	w.serve(w.path("home")).expect("listening")
	if s := w.dial("lonely/yett-mcp").expect("dialled"); s.Cause != Imposter || !strings.Contains(s.Error, "not found") {
		t.Errorf("dialling said %+v", s)
	}
}

// The listener is the broker, but another process answers on its connection.
func TestU10_AnswerFromAnotherProcess(t *testing.T) {
	w := newWorld(t)
	w.start("bin/yett", "as-serve-handing-off", []string{w.path("home")}).expect("listening")
	d := w.dial("bin/yett-mcp")
	if s := d.expect("dialled"); s.Error != "" {
		t.Fatalf("dialling: %+v", s)
	}
	if s := d.expect("read"); s.Bytes != "" || !strings.Contains(s.Error, "sender") {
		t.Errorf("read %+v, want another sender", s)
	}
}

// The process that listened is dead, and another one kept its listener: the
// kernel still takes connections and names the dead one.
func TestU10_ListenerOfADeadProcess(t *testing.T) {
	w := newWorld(t)
	w.own(runDir)
	fake := w.start("bin/yett", "as-fake-shared", []string{w.path(sock)})
	fake.expect("listening")
	must(t, fake.cmd.Process.Kill())
	_, err := fake.cmd.Process.Wait() // leaves stdin open: the heir lives
	must(t, err)
	check := w.untouched(w.path(sock))
	if s := w.dial("bin/yett-mcp").expect("dialled"); s.Cause != Stale || !strings.Contains(s.Error, "exited") {
		t.Errorf("dialling said %+v, want stale", s)
	}
	if s := w.serve(w.path("home")).expect("failed"); s.Kind != "unsafe" || !strings.Contains(s.Error, "another process listens") {
		t.Errorf("a broker said %+v", s)
	}
	check()
}

func TestC11_UnavailableIsSaidFast(t *testing.T) {
	tests := []struct {
		name string
		make func(w *world)
		want Cause
	}{
		{"no home", func(w *world) { must(w.t, os.Remove(w.path("home"))) }, NotRunning},
		{"no directory", func(*world) {}, NotRunning},
		{"no socket", func(w *world) { w.own(runDir) }, NotRunning},
		{"dead socket", func(w *world) { w.own(runDir); w.deadSocket(sock) }, Stale},
		{"wide node", func(w *world) {
			w.serve(w.path("home")).expect("listening")
			must(w.t, os.Chmod(w.path(sock), 0o660))
		}, Unsafe},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.make(w)
			if s := w.dial("bin/yett-mcp").expect("dialled"); s.Cause != test.want || s.TookMS > 200 {
				t.Errorf("dialling said %+v, want %s within 200 ms", s, test.want)
			}
		})
	}
}

func TestU02_FullQueueIsNotAnswering(t *testing.T) {
	w := newWorld(t)
	w.own(runDir)
	w.start("bin/other", "as-fake-full", []string{w.path(sock)}).expect("listening")
	if s := w.dial("bin/yett-mcp").expect("dialled"); s.Cause != NotAnswering || s.TookMS > 3000 {
		t.Errorf("dialling said %+v", s)
	}
}

// mine is a broker in this very process, and its location.
func mine(t *testing.T) (*Listener, program) {
	t.Helper()
	w := newWorld(t)
	w.uid = os.Getuid()
	l, err := InHome(w.own("mine"))
	must(t, err)
	ln, err := Listen(l)
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln, func() (string, uint64, uint64, error) {
		self, err := os.Executable()
		if err != nil {
			return "", 0, 0, err
		}
		dev, ino := w.inode(self)
		return self, dev, ino, nil
	}
}

func TestConnReadsOnlyThroughTheCheck(t *testing.T) {
	ln, self := mine(t)
	go serveHello(ln)
	c, err := dial(context.Background(), ln.Location(), self)
	must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(lineWait))
	b := make([]byte, 8)
	if _, _, err := c.ReadFrom(b); !errors.Is(err, errUnchecked) {
		t.Errorf("ReadFrom: %v", err)
	}
	if _, _, err := c.ReadFromUnix(b); !errors.Is(err, errUnchecked) {
		t.Errorf("ReadFromUnix: %v", err)
	}
	if _, _, _, _, err := c.ReadMsgUnix(b, nil); !errors.Is(err, errUnchecked) {
		t.Errorf("ReadMsgUnix: %v", err)
	}
	_, err = c.Write([]byte("hello\n"))
	must(t, err)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "hello\n" {
		t.Errorf("Read: %q, %v", b[:n], err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ln, self := mine(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c, err := dial(ctx, ln.Location(), self)
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Cause != NotAnswering || !errors.Is(err, context.Canceled) {
		t.Errorf("dialling with an ended context: %v, %v", c, err)
	}
}

func TestListenerCloses(t *testing.T) {
	ln, _ := mine(t)
	ended := make(chan error)
	go func() {
		_, err := ln.Accept()
		ended <- err
	}()
	must(t, ln.Close())
	must(t, ln.Close()) // again is no error
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Accept returned a connection after Close")
		}
	case <-time.After(lineWait):
		t.Error("Close did not end Accept")
	}
	next, err := Listen(ln.Location())
	must(t, err)
	must(t, next.Close())
}
