package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// up is yett up with a passphrase, and a place for the recovery code.
func (a account) up() *exec.Cmd {
	a.t.Helper()
	phrase, w, err := os.Pipe()
	if err != nil {
		a.t.Fatal(err)
	}
	w.WriteString("correct horse battery staple\n")
	w.Close()
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { phrase.Close(); nowhere.Close() })
	c := a.command("up", "--passphrase-fd", "3", "--recovery-fd", "4")
	c.ExtraFiles = []*os.File{phrase, nowhere}
	return c
}

const ledgerHad = "the ledger is in use by another broker"

// TestStopThenUp: when yett stop has returned, nothing of the broker is left
// that the next one would meet. Where none runs it says so.
func TestStopThenUp(t *testing.T) {
	a := newAccount(t)
	t.Cleanup(func() { a.run("stop") })
	none := func(when string) {
		t.Helper()
		if out, code := a.run("stop"); code != exitUnavailable || !strings.Contains(out, "No broker is running") {
			t.Errorf("%s: exit %d\n%s", when, code, out)
		}
		if out, code := a.run("stop", "--json"); code != exitUnavailable || !strings.HasPrefix(out, "{\"stopped\":false}\n{\"error\":{\"code\":\"unavailable\",") {
			t.Errorf("%s: exit %d\n%s", when, code, out)
		}
	}
	none("before there was one")
	defer none("after the last one")
	for round := range 5 {
		if out, err := a.up().CombinedOutput(); err != nil {
			t.Fatalf("round %d: up: %v\n%s", round, err, out)
		}
		if out, code := a.run("stop"); code != exitDone || !strings.Contains(out, "Stopped.") {
			t.Fatalf("round %d: stop: exit %d\n%s", round, code, out)
		}
	}
	if log := a.read(".local/share/yett/broker.log"); strings.Contains(log, ledgerHad) {
		t.Errorf("a broker met another:\n%s", log)
	}
}

// TestUpAwaitsALedger: where a broker that is ending still has the ledger, yett
// up starts another once it has let go.
func TestUpAwaitsALedger(t *testing.T) {
	a := newAccount(t)
	t.Cleanup(func() { a.run("stop") })
	if out, err := a.up().CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, code := a.run("stop"); code != exitDone {
		t.Fatal(out)
	}
	lock, err := os.Open(filepath.Join(a.home, ".local/share/yett/ledger.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	again := a.up()
	again.Stdout, again.Stderr = &out, &out
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(a.read(".local/share/yett/broker.log"), ledgerHad); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no broker met the lock")
		}
	}
	lock.Close()
	if err := again.Wait(); err != nil || !strings.Contains(out.String(), "Yett is up.") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
