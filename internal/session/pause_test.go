package session

import (
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// A paused session gives nothing, keeps what it had, and goes on to its
// original end.
func TestPauseKeepsGrantsAndEnd(t *testing.T) {
	s, clock := live(t)
	s.Grant([]string{"a"}, clock.Now().Add(time.Hour), false, true)
	before := s.Status()
	work := s.Work()
	if !s.Pause() || s.Pause() {
		t.Fatal("a live session is paused once")
	}
	if s.State() != Paused || granted(s, "a") || s.Spend("a") {
		t.Error("a paused session acts")
	}
	if work.Err() == nil || s.Context().Err() != nil {
		t.Error("what was not sent goes on, or the session has ended")
	}
	clock.pass(IdleLife / 8)
	if !s.Resume() || s.Resume() {
		t.Fatal("a paused session is resumed once")
	}
	if s.Work().Err() != nil || !granted(s, "a") || !s.Spend("a") {
		t.Error("a resumed session does not act")
	}
	if after := s.Status(); after.ExpiresAt != before.ExpiresAt || after.State != Active {
		t.Errorf("resumed as %+v, was %+v", after, before)
	}
	clock.pass(time.Hour - IdleLife/8)
	if s.Due() != Expired {
		t.Error("the pause moved the end")
	}
}

// Silence does not end a paused session, and the time of the pause is not
// silence afterwards; its end does.
func TestPauseIsNoSilence(t *testing.T) {
	s, clock := live(t)
	s.Pause()
	clock.pass(IdleLife + time.Minute)
	if why := s.Due(); why != "" {
		t.Fatalf("due for %q while paused", why)
	}
	if !s.Resume() || s.Due() != "" {
		t.Error("it was idle at once")
	}
	s.Pause()
	clock.pass(MaxLife)
	if s.Due() != Expired || s.Resume() || s.State() != Paused {
		t.Error("a session that is past its end was resumed")
	}
	if !s.End(Expired) || s.Resume() || s.Pause() {
		t.Error("an ended session came back")
	}
}

// A pause before the first decision: decided meanwhile or not, the session goes
// on where it was.
func TestPauseOfAPendingSession(t *testing.T) {
	for _, decided := range []bool{false, true} {
		clock := newTestClock()
		table, ch := NewTable(clock), NewChannel()
		s := table.Make(ch, action.Caller{}, Pending)
		s.Pause()
		if decided {
			s.Grant([]string{"a"}, time.Time{}, false, true)
			s.Activate()
		}
		if s.State() != Paused || granted(s, "a") {
			t.Error("a decision ended the pause")
		}
		s.Resume()
		if want := map[bool]State{false: Pending, true: Active}[decided]; s.State() != want || granted(s, "a") != decided {
			t.Errorf("decided %v: resumed as %s", decided, s.State())
		}
	}
}

// A grant is looked at again before anything is sent: its end, its session's
// end and pause, and what was taken back count until then.
func TestAGrantStandsUntilItsEnd(t *testing.T) {
	for name, change := range map[string]func(*Session, *testClock){
		"expired": func(_ *Session, c *testClock) { c.pass(time.Minute) },
		"ended":   func(s *Session, _ *testClock) { s.End(Revoked) },
		"paused":  func(s *Session, _ *testClock) { s.Pause() },
		"voided":  func(s *Session, _ *testClock) { s.Void([]string{"a"}) },
	} {
		s, clock := live(t)
		s.Grant([]string{"a"}, clock.Now().Add(time.Minute), false, false)
		g, _ := s.Granted("a")
		if !s.Spend("a") || !s.Stands("a", g) {
			t.Errorf("%s: it does not stand", name)
		}
		change(s, clock)
		if s.Stands("a", g) {
			t.Errorf("%s: it still stands", name)
		}
	}
	s, clock := live(t)
	s.Grant([]string{"a"}, clock.Now().Add(time.Minute), true, false)
	g, _ := s.Granted("a")
	if !s.Spend("a") || !s.Stands("a", g) {
		t.Error("a grant for one action does not stand for it")
	}
	clock.pass(time.Minute)
	if s.Stands("a", g) {
		t.Error("a grant for one action stands beyond its end")
	}
}

// One process cannot push the ended sessions of another off the list.
func TestTheTableForgetsTheOldestOfEachProcess(t *testing.T) {
	table := NewTable(newTestClock())
	insert := func(owner string) *Session {
		c := NewChannel()
		s := table.Make(c, action.Caller{}, Active)
		table.Insert(c, s, owner)
		return s
	}
	quiet := insert("quiet")
	quiet.End(Revoked)
	var last *Session
	for range 10 * keptOfOne {
		last = insert("loud")
		last.End(Idle)
	}
	if _, ok := table.Get(quiet.ID); !ok {
		t.Error("one process pushed out another's session")
	}
	if _, ok := table.Get(last.ID); !ok {
		t.Error("the newest is forgotten")
	}
	if n := len(table.All()); n > 2*keptOfOne+2 {
		t.Errorf("%d sessions are remembered", n)
	}
}
