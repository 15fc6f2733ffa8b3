package system

import (
	"errors"
	"path/filepath"
	"testing"
)

// machine is the stand-in's power and screen.
type machine struct {
	tell    func(message uint32, id int) int32
	allowed func() int
	open    func() int32
	screen  func(state int32)
	live    func() int32
}

func openMachine(t *testing.T, path string) *machine {
	t.Helper()
	m := &machine{}
	l, err := open(path)
	if err == nil {
		err = l.bind([]binding{{"standin_power", &m.tell}, {"standin_allowed", &m.allowed}, {"standin_open", &m.open},
			{"standin_screen", &m.screen}, {"standin_live", &m.live}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSleepWaitsForTheAnswer: the system calls from a thread of its own, a
// sleep waits until it is allowed, and nothing else does.
func TestSleepWaitsForTheAnswer(t *testing.T) {
	path := standin(t)
	m := openMachine(t, path)
	p, err := OpenPower(path, path)
	if err != nil {
		t.Fatal(err)
	}
	type word struct {
		sleeping bool
		allow    func()
	}
	heard := make(chan word, 8)
	stop, err := p.Hear(func(sleeping bool, allow func()) { heard <- word{sleeping, allow} })
	if err != nil {
		t.Fatal(err)
	}
	if m.tell(messageCanSleep, 1) != 0 || m.allowed() != 1 || len(heard) != 0 {
		t.Errorf("an idle machine was kept awake, or heard of: allowed %d, heard %d", m.allowed(), len(heard))
	}
	if m.tell(messageWillSleep, 2) != 0 || m.allowed() != 1 {
		t.Errorf("the machine sleeps before it is allowed to: %d", m.allowed())
	}
	w := <-heard
	w.allow()
	w.allow()
	if !w.sleeping || m.allowed() != 2 {
		t.Errorf("sleeping %t, allowed %d", w.sleeping, m.allowed())
	}
	if m.tell(messageHasWoken, 3) != 0 || m.allowed() != 2 {
		t.Errorf("a waking was answered: %d", m.allowed())
	}
	if w := <-heard; w.sleeping {
		t.Error("a waking was taken for a sleep")
	}
	m.tell(messageWillSleep, 4)
	stop()
	(<-heard).allow() // nobody waits any more
	if m.allowed() != 2 || m.open() != 0 {
		t.Errorf("after the end: allowed %d, %d things left open", m.allowed(), m.open())
	}
	stop()
	if _, err := p.Hear(nil); err == nil {
		t.Error("sleep was heard twice")
	}
}

func TestScreenLocked(t *testing.T) {
	path := standin(t)
	m := openMachine(t, path)
	s, err := OpenScreen(path, path)
	if err != nil {
		t.Fatal(err)
	}
	for state, want := range []struct{ locked, fails bool }{{false, false}, {true, false}, {true, false}, {false, true}, {false, true}} {
		m.screen(int32(state))
		locked, err := s.Locked()
		if locked != want.locked || (err != nil) != want.fails {
			t.Errorf("state %d: %t, %v", state, locked, err)
		}
	}
	if n := m.live(); n != 0 {
		t.Errorf("%d objects were not released", n)
	}
}

func TestPowerIsMissing(t *testing.T) {
	whole, none := standin(t), filepath.Join(t.TempDir(), "none.so")
	for _, paths := range [][2]string{{none, whole}, {whole, none}} {
		if _, err := OpenPower(paths[0], paths[1]); !errors.Is(err, ErrMissing) {
			t.Error(err)
		}
		if _, err := OpenScreen(paths[0], paths[1]); !errors.Is(err, ErrMissing) {
			t.Error(err)
		}
	}
}
