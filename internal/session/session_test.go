package session

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// live returns an active session on a channel of its own.
func live(t *testing.T) (*Session, *testClock) {
	t.Helper()
	clock := newTestClock()
	table, ch := NewTable(clock), NewChannel()
	s := table.Make(ch, action.Caller{Role: "native"}, Active)
	table.Insert(ch, s, "one")
	return s, clock
}

func granted(s *Session, capability string) bool {
	_, ok := s.Granted(capability)
	return ok
}

func TestNumbersBeginAtOneWithoutGaps(t *testing.T) {
	s, _ := live(t)
	for i, step := range []struct {
		n    int64
		want bool
	}{{0, false}, {2, false}, {-1, false}, {1, true}, {1, false}, {0, false}, {3, false}, {2, true}, {1, false}, {2, false},
		{-9223372036854775808, false}, {9223372036854775807, false}, {3, true}} {
		if got := s.Consume(step.n); got != step.want {
			t.Errorf("step %d: Consume(%d) = %v", i, step.n, got)
		}
	}
}

func TestANumberIsConsumedOnce(t *testing.T) {
	s, _ := live(t)
	for n := int64(1); n <= 20; n++ {
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if s.Consume(n) {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("number %d was consumed %d times", n, won.Load())
		}
	}
}

// A grant ends on the boot clock, to the nanosecond, wherever the wall clock
// was set meanwhile.
func TestAGrantEndsOnTheBootClock(t *testing.T) {
	for _, jump := range []time.Duration{0, 48 * time.Hour, -48 * time.Hour} {
		s, clock := live(t)
		s.Grant([]string{"a"}, clock.Now().Add(time.Hour), false, false)
		s.Grant([]string{"whole"}, time.Time{}, false, false)
		clock.jump(jump)
		clock.pass(time.Hour - 1)
		if !granted(s, "a") || !s.Spend("a") {
			t.Errorf("jump of %v: the grant ended early", jump)
		}
		clock.pass(1)
		if granted(s, "a") || s.Spend("a") {
			t.Errorf("jump of %v: the grant outlives its end", jump)
		}
		if st := s.Status(); !slices.Equal(st.Capabilities, []string{"whole"}) {
			t.Errorf("jump of %v: granted are %v", jump, st.Capabilities)
		}
		clock.pass(MaxLife - time.Hour - 1)
		if !s.Spend("whole") {
			t.Errorf("jump of %v: the grant for the whole session ended early", jump)
		}
		clock.pass(1)
		if granted(s, "whole") || s.Spend("whole") {
			t.Errorf("jump of %v: a grant outlives its session", jump)
		}
	}
}

// A grant that is given after the wall clock was set lasts as long as it says,
// and never longer than its session.
func TestAGrantNeverOutlivesItsSession(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, jump := range []time.Duration{0, -5 * time.Hour, 5 * time.Hour} {
			s, clock := live(t)
			clock.pass(time.Hour)
			clock.jump(jump)
			s.Grant([]string{"a"}, clock.Now().Add(MaxLife), false, first)
			clock.pass(MaxLife - time.Hour - 1)
			if !granted(s, "a") || s.Due() == Expired {
				t.Errorf("jump of %v: it ended before its session", jump)
			}
			clock.pass(1)
			if granted(s, "a") || s.Due() != Expired {
				t.Errorf("jump of %v: a session lives longer than %v", jump, MaxLife)
			}
		}
	}
	// Set forward, an end that is near lies behind expiresAt of the wall clock.
	s, clock := live(t)
	clock.jump(24 * time.Hour)
	s.Grant([]string{"a"}, clock.Now().Add(time.Minute), false, false)
	clock.pass(time.Minute)
	if granted(s, "a") {
		t.Error("a grant for a minute lasts longer")
	}
	s.Grant([]string{"b"}, clock.Now(), false, false)
	s.Grant([]string{"c"}, clock.Now().Add(-time.Hour), false, false)
	s.Grant([]string{"d"}, clock.Now().AddDate(-200, 0, 0), false, false)
	if granted(s, "b") || granted(s, "c") || granted(s, "d") {
		t.Error("a grant that has ended is one")
	}
}

// The first card's end is that of the session itself; a later card's is not.
func TestTheFirstCardEndsTheSession(t *testing.T) {
	s, clock := live(t)
	s.Grant([]string{"later"}, clock.Now().Add(time.Minute), false, false)
	if want := s.BeganAt.Add(MaxLife); !s.Status().ExpiresAt.Equal(want) {
		t.Errorf("a later card moved the end to %v", s.Status().ExpiresAt)
	}
	s.Grant([]string{"a"}, clock.Now().Add(time.Hour), false, true)
	if want := s.BeganAt.Add(time.Hour); !s.Status().ExpiresAt.Equal(want) {
		t.Errorf("the session ends at %v, want %v", s.Status().ExpiresAt, want)
	}
	s.Grant([]string{"b"}, clock.Now().Add(2*time.Hour), false, false)
	clock.pass(time.Hour - 1)
	if s.Due() != "" || !granted(s, "b") {
		t.Errorf("due %q a nanosecond early", s.Due())
	}
	clock.pass(1)
	if s.Due() != Expired || granted(s, "b") {
		t.Errorf("due %q at the end", s.Due())
	}
}

func TestAGrantForOneActionIsSpentOnce(t *testing.T) {
	for range 20 {
		s, _ := live(t)
		s.Grant([]string{"once", "other"}, time.Time{}, true, false)
		s.Grant([]string{"often"}, time.Time{}, false, false)
		var won, often atomic.Int32
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				<-start
				if s.Spend("once") {
					won.Add(1)
				}
				if s.Spend("often") {
					often.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if won.Load() != 1 || often.Load() != 100 {
			t.Fatalf("a grant for one action was spent %d times, the other %d times", won.Load(), often.Load())
		}
		if granted(s, "once") || !granted(s, "other") {
			t.Fatal("spending one grant touched another, or left its own")
		}
	}
}

func TestNothingIsGrantedUnasked(t *testing.T) {
	s, _ := live(t)
	s.Grant([]string{"a", "b"}, time.Time{}, false, false)
	if s.Spend("c") || s.Spend("") || granted(s, "A") {
		t.Error("a capability that nobody granted is granted")
	}
	s.Void([]string{"a", "unknown"})
	if s.Spend("a") || granted(s, "a") || !s.Spend("b") {
		t.Error("Void takes back what it names, and nothing else")
	}
}

func TestAPendingSessionGivesNothing(t *testing.T) {
	clock := newTestClock()
	table, ch := NewTable(clock), NewChannel()
	s := table.Make(ch, action.Caller{}, Pending)
	s.Grant([]string{"a"}, time.Time{}, false, false)
	if s.Status().State != Pending || granted(s, "a") || s.Spend("a") {
		t.Error("a pending session acts")
	}
	s.Activate()
	if s.Status().State != Active || !s.Spend("a") {
		t.Error("an active session does not act")
	}
}

func TestDue(t *testing.T) {
	s, clock := live(t)
	clock.jump(1000 * time.Hour)
	clock.pass(IdleLife - 1)
	if got := s.Due(); got != "" {
		t.Errorf("a nanosecond before it is idle: %q", got)
	}
	s.Consume(1)
	clock.pass(IdleLife - 1)
	if got := s.Due(); got != "" {
		t.Errorf("after a message: %q", got)
	}
	s.Consume(5) // out of order: says nothing
	clock.pass(1)
	if got := s.Due(); got != Idle {
		t.Errorf("idle: %q", got)
	}
	s.Consume(2)
	clock.pass(1)
	if got := s.Due(); got != Expired {
		t.Errorf("after %v: %q", MaxLife, got)
	}
	s.End(Expired)
	if got := s.Due(); got != "" {
		t.Errorf("an ended session: %q", got)
	}
}

func TestASessionEndsOnceAndTheFirstReasonStands(t *testing.T) {
	s, _ := live(t)
	s.Grant([]string{"a"}, time.Time{}, false, false)
	if s.EndReason() != "" || s.Context().Err() != nil {
		t.Fatal("a live session has ended")
	}
	reasons := []string{ChannelClosed, AgentExited, ShimExited, Revoked, Expired, Idle, Locked, BrokerStopped, EvidenceChanged}
	var ended atomic.Int32
	var first atomic.Value
	var wg sync.WaitGroup
	for n := range 90 {
		wg.Go(func() {
			if s.End(reasons[n%len(reasons)]) {
				ended.Add(1)
				first.Store(reasons[n%len(reasons)])
			}
		})
	}
	wg.Wait()
	st := s.Status()
	if ended.Load() != 1 || st.State != Ended || st.EndReason != first.Load() || s.EndReason() != st.EndReason {
		t.Errorf("%d ends, first %v, status %+v", ended.Load(), first.Load(), st)
	}
	select {
	case <-s.Context().Done():
	default:
		t.Error("the work of an ended session goes on")
	}
	if granted(s, "a") || s.Spend("a") || len(st.Capabilities) != 0 {
		t.Error("an ended session has grants")
	}
	s.Grant([]string{"b"}, time.Time{}, false, true)
	s.Activate()
	if st := s.Status(); st.State != Ended || granted(s, "b") || s.Spend("b") || len(st.Capabilities) != 0 {
		t.Errorf("a session came back: %+v", st)
	}
}

func TestAStatusIsACopy(t *testing.T) {
	s, _ := live(t)
	s.Grant([]string{"b", "a", "c"}, time.Time{}, false, false)
	st := s.Status()
	if !slices.Equal(st.Capabilities, []string{"a", "b", "c"}) {
		t.Errorf("granted are %v", st.Capabilities)
	}
	st.Capabilities[0] = "everything"
	if again := s.Status().Capabilities; !slices.Equal(again, []string{"a", "b", "c"}) || granted(s, "everything") {
		t.Errorf("a changed copy changed the session: %v", again)
	}
	s.Void([]string{"b"})
	if !slices.Equal(st.Capabilities[1:], []string{"b", "c"}) {
		t.Errorf("the session changed a copy: %v", st.Capabilities)
	}
}
