package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// Clock gives the wall clock for display and the time since boot, suspension
// included, for judging ends.
type Clock interface {
	Now() time.Time
	SinceBoot() time.Duration
}

const (
	// keptEnded bounds the ended sessions that are remembered: enough to answer
	// session_ended and to list them, not enough to grow without end.
	keptEnded = 2000
	// keptOfOne bounds those of one process, so that it cannot push others out.
	keptOfOne = 200
)

// Table holds the sessions of one broker instance, ended ones included.
type Table struct {
	clock Clock

	mu      sync.Mutex
	byID    map[string]*Session
	byOwner map[string]int // how many sessions of a process are remembered
	order   []*Session
	full    int // how many are remembered before the oldest are looked through
}

// NewTable returns an empty table.
func NewTable(clock Clock) *Table {
	return &Table{clock: clock, byID: map[string]*Session{}, byOwner: map[string]int{}, full: 2 * keptEnded}
}

// Channel is one accepted connection: its identity and the nonce that opens
// one session on it.
type Channel struct {
	ID    string
	Nonce string

	mu      sync.Mutex
	session *Session
	spent   bool
}

// NewChannel makes the identity of an accepted connection.
func NewChannel() *Channel { return &Channel{ID: action.NewID("c_"), Nonce: action.NewID("n_")} }

// Session returns the channel's session, or nil.
func (c *Channel) Session() *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// TakeNonce spends the nonce: it reports whether nonce is this channel's and
// was not used before.
func (c *Channel) TakeNonce(nonce string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spent || nonce != c.Nonce {
		return false
	}
	c.spent = true
	return true
}

// GiveBack makes the nonce usable again after an opening that came to nothing.
// On a channel that has a session it does nothing.
func (c *Channel) GiveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent = c.session != nil
}

// Make makes the session of a channel whose nonce was taken. Nobody can use it
// before Insert.
func (t *Table) Make(c *Channel, caller action.Caller, state State) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	now, at := t.clock.SinceBoot(), t.clock.Now().UTC().Truncate(time.Millisecond)
	work, stopWork := context.WithCancel(ctx)
	return &Session{ID: action.NewID("s_"), ChannelID: c.ID, Caller: caller, BeganAt: at, clock: t.clock, ctx: ctx, cancel: cancel,
		work: work, stopWork: stopWork, state: state, expiresAt: at.Add(MaxLife), end: now + MaxLife, lastUse: now, grants: map[string]Grant{}}
}

// Insert makes a session known: from now on it can be used. Owner names its
// process, among whose ended sessions the oldest are forgotten first.
func (t *Table) Insert(c *Channel, s *Session, owner string) {
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	s.owner = owner
	t.byID[s.ID] = s
	t.byOwner[owner]++
	t.order = append(t.order, s)
	if n := t.byOwner[owner]; n > 2*keptOfOne {
		t.forgetLocked(n-keptOfOne, func(s *Session) bool { return s.owner == owner })
	}
	if n := len(t.order); n > t.full {
		t.forgetLocked(n-keptEnded, func(*Session) bool { return true })
		t.full = max(2*keptEnded, len(t.order)+keptEnded/4) // live ones stay: do not look at each Insert
	}
}

// forgetLocked forgets the oldest of those that ended and match, at most excess.
func (t *Table) forgetLocked(excess int, match func(*Session) bool) {
	t.order = slices.DeleteFunc(t.order, func(s *Session) bool {
		if excess == 0 || !match(s) || s.State() != Ended {
			return false
		}
		excess--
		delete(t.byID, s.ID)
		if t.byOwner[s.owner]--; t.byOwner[s.owner] == 0 {
			delete(t.byOwner, s.owner)
		}
		return true
	})
}

// Get returns a session by id, ended ones included.
func (t *Table) Get(id string) (*Session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.byID[id]
	return s, ok
}

// All returns the sessions in the order in which they began.
func (t *Table) All() []*Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.order)
}

// Live counts the sessions that have not ended, and those of them that are
// paused.
func (t *Table) Live() (live, paused int) {
	for _, s := range t.All() {
		switch s.State() {
		case Ended:
			continue
		case Paused:
			paused++
		}
		live++
	}
	return live, paused
}
