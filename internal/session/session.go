// Package session holds what binds an approved caller to its requests: the
// session's identity, the channel it lives on, the order of its messages, what
// it was granted, and its end.
//
// A session is (channel, caller evidence, capabilities, begin, end, unit). It
// lives in memory only and never outlives its channel; its history is in the
// ledger. Ends are judged on the boot clock, which counts suspension, at every
// use. A paused session keeps its end and its grants and gives nothing; silence
// does not end it, since nobody would answer. The package makes the ids and
// judges the envelope; it does no I/O and takes evidence as given by its caller,
// the broker.
package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// State is the state of a session.
type State string

const (
	Pending State = "pending" // its first card waits
	Active  State = "active"
	Paused  State = "paused" // Yett was locked by itself; the person's proof resumes it
	Ended   State = "ended"
)

// Reasons for the end of a session.
const (
	ChannelClosed   = "channel_closed"
	AgentExited     = "agent_exited"
	ShimExited      = "shim_exited"
	Revoked         = "revoked"
	Expired         = "expired"
	Idle            = "idle"
	Locked          = "locked"
	BrokerStopped   = "broker_stopped"
	EvidenceChanged = "evidence_changed"
)

const (
	// MaxLife is the longest life of a session.
	MaxLife = 8 * time.Hour
	// IdleLife is how long a session may say nothing.
	IdleLife = 4 * time.Hour
)

// Grant is what one decision gave for one capability.
type Grant struct {
	Until time.Time     // wall clock, for display
	end   time.Duration // since boot
	Once  bool          // covers one action
}

// Session is one session. Its first group of fields never changes.
type Session struct {
	ID        string
	ChannelID string
	Caller    action.Caller
	BeganAt   time.Time
	owner     string // set by Insert
	clock     Clock
	ctx       context.Context
	cancel    context.CancelFunc

	mu        sync.Mutex
	state     State
	resumed   State // what a paused session goes back to
	endReason string
	work      context.Context // ends with the session, and when it is paused
	stopWork  context.CancelFunc
	expiresAt time.Time
	end       time.Duration // since boot
	lastUse   time.Duration
	sequence  int64
	grants    map[string]Grant
}

// Context is cancelled when the session ends.
func (s *Session) Context() context.Context { return s.ctx }

// Work is cancelled when the session ends or is paused: what was not sent by
// then is not sent. A session that was resumed has another one.
func (s *Session) Work() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.work
}

// State is the present state.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Status is a consistent view of what changes in a session.
type Status struct {
	State        State
	EndReason    string
	ExpiresAt    time.Time
	Capabilities []string // granted and not used up, sorted
}

// Status returns the present state.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{State: s.state, EndReason: s.endReason, ExpiresAt: s.expiresAt, Capabilities: []string{}}
	now := s.clock.SinceBoot()
	for c, g := range s.grants {
		if now < g.end {
			st.Capabilities = append(st.Capabilities, c)
		}
	}
	slices.Sort(st.Capabilities)
	return st
}

// HasGrant reports whether the session lives and something is granted to it.
func (s *Session) HasGrant() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.SinceBoot()
	for _, g := range s.grants {
		if now < g.end {
			return s.state != Ended
		}
	}
	return false
}

// Consume judges a sequence number: it must be the next one, and is then used
// up. Numbers begin at 1.
func (s *Session) Consume(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n != s.sequence+1 {
		return false
	}
	s.sequence = n
	s.lastUse = s.clock.SinceBoot()
	return true
}

// Activate ends the state pending; a paused session resumes as active then. It
// does nothing to an ended session.
func (s *Session) Activate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case Pending:
		s.state = Active
	case Paused:
		s.resumed = Active
	}
}

// Pause stops a session until Resume. It reports whether this call did.
func (s *Session) Pause() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Paused || s.state == Ended {
		return false
	}
	s.resumed, s.state = s.state, Paused
	s.stopWork()
	return true
}

// Resume lets a paused session go on as it was, to its original end. It reports
// false for one that is not paused or is past its end.
func (s *Session) Resume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.SinceBoot()
	if s.state != Paused || now >= s.end {
		return false
	}
	s.state, s.lastUse = s.resumed, now
	s.work, s.stopWork = context.WithCancel(s.ctx)
	return true
}

// Grant gives capabilities until a time, or until the session's end when until
// is zero. With end, the session itself ends then too: its own card said so.
func (s *Session) Grant(capabilities []string, until time.Time, once, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Ended {
		return
	}
	g := Grant{Until: s.expiresAt, end: s.end, Once: once}
	// How much later until is counts, not whether it is before expiresAt: the
	// wall clock may have been set since the session began.
	if at := s.clock.SinceBoot() + until.Sub(s.clock.Now()); !until.IsZero() && at < s.end {
		g.Until, g.end = until, at
		if end {
			s.expiresAt, s.end = until, at
		}
	}
	for _, c := range capabilities {
		s.grants[c] = g
	}
}

// Granted reports whether a capability is granted now, and how.
func (s *Session) Granted(capability string) (Grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.grants[capability]
	return g, ok && s.state == Active && s.clock.SinceBoot() < g.end
}

// Stands reports whether an action may still begin under a grant that Granted
// gave for its capability, although Spend has used it up meanwhile.
func (s *Session) Stands(capability string, g Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.grants[capability]
	now := s.clock.SinceBoot()
	return (ok || g.Once) && s.state == Active && now < g.end && now < s.end
}

// Spend uses a grant for one action. A grant for one action is gone afterwards,
// so that of two requests that race for it only one gets it. A live session
// that is past its end is not spendable.
func (s *Session) Spend(capability string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.grants[capability]
	if !ok || s.state != Active || s.clock.SinceBoot() >= g.end {
		return false
	}
	if g.Once {
		delete(s.grants, capability)
	}
	return true
}

// Void takes grants back: what they said is no longer what they would give.
func (s *Session) Void(capabilities []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range capabilities {
		delete(s.grants, c)
	}
}

// Due returns the reason for which the session must end now, if any.
func (s *Session) Due() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.SinceBoot()
	switch {
	case s.state == Ended:
		return ""
	case now >= s.end:
		return Expired
	case s.state != Paused && now-s.lastUse >= IdleLife:
		return Idle
	}
	return ""
}

// End ends the session and cancels its work. It reports whether this call
// ended it; the first reason stands.
func (s *Session) End(reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Ended {
		return false
	}
	s.state, s.endReason = Ended, reason
	clear(s.grants)
	s.cancel()
	return true
}

// EndReason returns the reason of an ended session, else "".
func (s *Session) EndReason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endReason
}
