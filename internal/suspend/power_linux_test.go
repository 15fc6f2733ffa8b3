package suspend

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// mac is a system of the test's own.
type mac struct {
	hear    func(sleeping bool, allow func())
	failure error
	stopped chan struct{}
	screens chan any // each look takes one: a bool or an error
}

func (m *mac) Hear(hear func(bool, func())) (func(), error) {
	if m.failure != nil {
		return nil, m.failure
	}
	m.hear = hear
	return func() { close(m.stopped) }, nil
}

func (m *mac) ScreenLocked() (bool, error) {
	switch v := (<-m.screens).(type) {
	case bool:
		return v, nil
	case error:
		return false, v
	}
	return false, errors.New("the test has ended")
}

// powered is a watcher on that system.
type powered struct {
	*mac
	t      *testing.T
	slept  chan time.Duration // what the clocks show, for each look
	tick   chan time.Time
	before chan func() // the watcher waits in each until it is called
	log    *journal
	cancel context.CancelFunc
	ended  chan struct{}
}

func power(t *testing.T, failure error) *powered {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &powered{mac: &mac{failure: failure, stopped: make(chan struct{})}, t: t, slept: make(chan time.Duration, 1), tick: make(chan time.Time),
		before: make(chan func()), log: newJournal(), cancel: cancel, ended: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(p.log, nil))
	sleep := func() {
		goOn := make(chan struct{})
		select {
		case p.before <- func() { close(goOn) }:
		case <-ctx.Done():
			return
		}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
	}
	w := &powerWatcher{watcher: newWatcher(Options{Log: log, Sleep: sleep}), system: p.mac}
	w.clock = func() time.Duration { return <-p.slept }
	p.slept <- 0
	go func() {
		defer close(p.ended)
		w.run(ctx, p.tick)
	}()
	t.Cleanup(func() { cancel(); <-p.ended })
	if failure == nil {
		p.log.wait(t, "locking before the machine sleeps")
	}
	return p
}

// say announces a sleep or a waking and returns what closes when it is allowed.
func (p *powered) say(sleeping bool) (allowed chan struct{}) {
	allowed = make(chan struct{})
	p.hear(sleeping, func() { close(allowed) })
	return allowed
}

// paused waits until the watcher has it paused, and returns what ends that.
func (p *powered) paused() (goOn func()) {
	p.t.Helper()
	select {
	case goOn := <-p.before:
		return goOn
	case <-time.After(event):
		p.t.Fatalf("nothing was paused; log:\n%s", p.log)
		return nil
	}
}

func (p *powered) look(slept time.Duration) {
	p.slept <- slept
	p.tick <- time.Time{}
}

func TestMacSleepsOnlyAfterThePause(t *testing.T) {
	p := power(t, nil)
	allowed := p.say(true)
	goOn := p.paused()
	select {
	case <-allowed:
		t.Fatal("the machine may sleep before the broker has paused")
	default:
	}
	goOn()
	<-allowed
	p.look(time.Hour) // the clocks show it before the waking is announced
	p.slept <- time.Hour
	<-p.say(false)
	p.look(time.Hour)
	p.look(2 * time.Hour) // and here is one that nobody announced
	p.paused()()
	if text := p.log.String(); strings.Count(text, "about to sleep") != 1 || strings.Count(text, "nobody announced it") != 1 {
		t.Errorf("the log:\n%s", text)
	}
}

func TestMacWithoutNoticesIsNoticedByTheClocks(t *testing.T) {
	p := power(t, errors.New("IORegisterForSystemPower: no port"))
	p.look(time.Hour)
	p.paused()()
	if text := p.log.String(); !strings.Contains(text, "noticed only afterwards") || !strings.Contains(text, "no port") {
		t.Errorf("the log:\n%s", text)
	}
}

// TestMacIsNotHeldUpAtTheEnd: what is announced while the watcher ends is allowed.
func TestMacIsNotHeldUpAtTheEnd(t *testing.T) {
	p := power(t, nil)
	first := p.say(true)
	goOn := p.paused()
	second := p.say(true)
	p.cancel()
	goOn()
	<-first
	for waiting := true; waiting; { // the second is heard or drained
		select {
		case goOn := <-p.before:
			goOn()
		case <-second:
			waiting = false
		}
	}
	<-p.ended
	<-p.stopped
}

func TestScreenThatIsLockedIsToldOnce(t *testing.T) {
	m := &mac{screens: make(chan any)}
	log, calls := newJournal(), make(chan struct{}, 8)
	w := &powerWatcher{system: m, screen: func() { calls <- struct{}{} }}
	ctx, cancel := context.WithCancel(t.Context())
	ended, tick := make(chan struct{}), make(chan time.Time)
	go func() {
		defer close(ended)
		w.followScreen(ctx, slog.New(slog.NewTextHandler(log, nil)), tick)
	}()
	unknown := errors.New("this login has no screen")
	for i, step := range []struct {
		screen any
		calls  int
	}{{false, 0}, {true, 1}, {true, 1}, {unknown, 1}, {unknown, 1}, {true, 1}, {false, 1}, {true, 2}} {
		m.screens <- step.screen
		tick <- time.Time{} // taken only when the look before has ended
		if len(calls) != step.calls {
			t.Errorf("after look %d it was told %d times, want %d", i, len(calls), step.calls)
		}
	}
	m.screens <- true
	cancel()
	<-ended
	if n := strings.Count(log.String(), "is not noticed"); n != 1 {
		t.Errorf("complained %d times:\n%s", n, log)
	}
}
