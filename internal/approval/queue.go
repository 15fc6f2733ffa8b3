package approval

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Errors that the broker branches on.
var (
	ErrTooMany = errors.New("too many cards of this caller wait or came too fast")
	ErrKeptNo  = errors.New("the person said no a moment ago")
	ErrUnknown = errors.New("no such card waits")
	ErrExpired = errors.New("the card has expired")
	ErrDigest  = errors.New("the digest is not that of the card")
	ErrChoice  = errors.New("the choice is not one that the card offers")
)

// wrongChoice says why a choice is not one that the card offers.
type wrongChoice string

func (w wrongChoice) Error() string { return string(w) }
func (wrongChoice) Unwrap() error   { return ErrChoice }

// keepNo is how long a no is kept.
const keepNo = time.Minute

// Decision is what became of a card.
type Decision struct {
	Choice string // once, until or deny; empty while it waits
	Until  time.Time
	Code   string // for a no: denied, approval_expired, revoked, locked …
}

// Granted reports whether the decision is a yes.
func (d Decision) Granted() bool { return d.Choice == ChoiceOnce || d.Choice == ChoiceUntil }

// Item is one card in the queue. Its fields do not change after it is filed.
type Item struct {
	Card         Card
	Document     []byte
	Digest       string
	Capabilities []string
	SessionID    string
	AskedAt      time.Time

	asked    atomic.Int32  // how often: once, and once more for each equal proposal
	end      time.Duration // since boot
	done     chan struct{}
	decision Decision // written before done is closed, read after
}

// ID returns the approval id.
func (i *Item) ID() string { return i.Card.ApprovalID }

// Asked is how often the caller has asked for this while the card waited.
func (i *Item) Asked() int { return int(i.asked.Load()) }

// End is the end of the card on the boot clock. A decision that came before it
// may be applied until then.
func (i *Item) End() time.Duration { return i.end }

// Done is closed when the card is decided, withdrawn or expired.
func (i *Item) Done() <-chan struct{} { return i.done }

// Decision returns the decision; its Choice is empty until Done is closed.
func (i *Item) Decision() Decision {
	select {
	case <-i.done:
		return i.decision
	default:
		return Decision{}
	}
}

// Clock gives the wall clock for display and the time since boot, suspension
// included, for judging ends.
type Clock interface {
	Now() time.Time
	SinceBoot() time.Duration
}

// Queue holds the cards that wait, in the order in which they came. It lists
// them in turn between callers: the oldest card of each caller first, then the
// second of each. So a caller that files a hundred cards stands with one of
// them before the first card of the next caller, not with a hundred. The memory
// of all cards is bounded; when it is used up, whoever holds the most of it
// loses its newest card to a caller that holds less.
type Queue struct {
	instance string
	clock    Clock
	most     int // bytes of all documents together

	mu      sync.Mutex
	items   []*waiting               // by age
	bytes   int                      // of their documents
	nos     map[string]time.Duration // kept no by key → end, since boot
	paid    map[string]time.Duration // when a caller's allowance is full again, since boot
	changed chan struct{}            // closed and replaced at each change of what waits
	changes int64                    // how many there were
}

type waiting struct {
	*Item
	caller string
	equal  string
	noKey  string
	timer  *time.Timer

	settled func(Decision)
}

// NewQueue returns an empty queue of one broker instance.
func NewQueue(instance string, clock Clock) *Queue {
	return &Queue{instance: instance, clock: clock, most: maxAllBytes,
		nos: map[string]time.Duration{}, paid: map[string]time.Duration{}, changed: make(chan struct{})}
}

// Proposal is what the broker wants decided. Caller bounds the queue; Equal
// coalesces: a second proposal that is equal gets the waiting card; NoKey is
// what a no is kept for.
type Proposal struct {
	Caller, Equal, NoKey string
	SessionID            string
	Verified             Verified
	Claimed              Claimed
	Granting             Granting
	Request              *Request

	// Settled, if set, is told the decision before anybody else can see it. It
	// runs with the queue held and must not call it.
	Settled func(Decision)
}

// File puts a card into the queue, or returns the equal one that waits.
func (q *Queue) File(p Proposal) (*Item, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.SinceBoot()
	q.sweepLocked(now)
	count := 0
	for _, w := range q.items {
		if w.equal == p.Equal && w.SessionID == p.SessionID {
			w.asked.Add(1)
			q.tellLocked()
			return w.Item, nil
		}
		if w.caller == p.Caller {
			count++
		}
	}
	if end, ok := q.nos[p.NoKey]; ok && now < end {
		return nil, ErrKeptNo
	}
	if count >= maxWaiting || !q.allowLocked(p.Caller, now) {
		return nil, ErrTooMany
	}
	w, err := q.newItemLocked(p, now)
	if err != nil {
		return nil, err
	}
	if !q.makeRoomLocked(p.Caller, len(w.Document)) {
		return nil, ErrTooMany
	}
	q.items = append(q.items, w)
	q.bytes += len(w.Document)
	w.timer = time.AfterFunc(CardLife, func() { q.expire(w) })
	q.tellLocked()
	return w.Item, nil
}

func (q *Queue) newItemLocked(p Proposal, now time.Duration) (*waiting, error) {
	at := q.clock.Now().UTC().Truncate(time.Millisecond)
	id := q.newIDLocked()
	card := Card{Format: 1, ApprovalID: id, Tag: Tag(id), BrokerInstance: q.instance, ExpiresAt: at.Add(CardLife),
		Verified: p.Verified, Claimed: p.Claimed, Granting: p.Granting, Request: p.Request}
	if card.Granting.LongestEnd.IsZero() {
		card.Granting.LongestEnd = at.Add(MaxGrant)
	}
	doc, err := write(card)
	if err != nil {
		return nil, err
	}
	item := &Item{Card: card, Document: doc, Digest: Digest(doc), SessionID: p.SessionID, AskedAt: at, end: now + CardLife, done: make(chan struct{})}
	item.asked.Store(1)
	for _, c := range p.Granting.Capabilities {
		item.Capabilities = append(item.Capabilities, c.Name)
	}
	return &waiting{Item: item, caller: p.Caller, equal: p.Equal, noKey: p.NoKey, settled: p.Settled}, nil
}

// Get returns a waiting card.
func (q *Queue) Get(id string) (*Item, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.findLocked(id)
	if err != nil {
		return nil, err
	}
	return w.Item, nil
}

func (q *Queue) findLocked(id string) (*waiting, error) {
	for _, w := range q.items {
		if w.ID() != id {
			continue
		}
		if q.clock.SinceBoot() >= w.end {
			q.settleLocked(w, expired)
			return nil, ErrExpired
		}
		return w, nil
	}
	return nil, ErrUnknown
}

var expired = Decision{Choice: ChoiceDeny, Code: "approval_expired"}

// sweepLocked settles what is past its end. A card's timer does it too, but
// does not count suspension.
func (q *Queue) sweepLocked(now time.Duration) {
	for len(q.items) > 0 && q.items[0].end <= now { // the oldest ends first
		q.settleLocked(q.items[0], expired)
	}
}

// List returns the waiting cards in turn between callers: see Queue.
func (q *Queue) List() []*Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sweepLocked(q.clock.SinceBoot())
	turn, turns := map[string]int{}, map[*waiting]int{}
	for _, w := range q.items {
		turns[w] = turn[w.caller]
		turn[w.caller]++
	}
	inTurn := slices.Clone(q.items)
	slices.SortStableFunc(inTurn, func(a, b *waiting) int { return cmp.Compare(turns[a], turns[b]) })
	out := make([]*Item, len(inTurn))
	for i, w := range inTurn {
		out[i] = w.Item
	}
	return out
}

// Len is how many cards wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sweepLocked(q.clock.SinceBoot())
	return len(q.items)
}

// Decide settles a card once. record is called while the queue is held, after
// every check and before anybody can see the decision; when it fails the card
// keeps waiting. For a yes, digest must be the card's.
func (q *Queue) Decide(id, digest string, d Decision, record func(*Item) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.findLocked(id)
	if err != nil {
		return err
	}
	switch {
	case d.Choice == ChoiceDeny:
	case d.Choice != ChoiceOnce && d.Choice != ChoiceUntil:
		return ErrChoice
	case digest != w.Digest:
		return ErrDigest
	case d.Choice == ChoiceUntil && w.Card.Request != nil:
		return wrongChoice("one action is approved once, not for a time")
	case d.Choice == ChoiceUntil:
		now := q.clock.Now()
		if !d.Until.After(now) {
			return wrongChoice("the end lies in the past")
		}
		if d.Until.After(now.Add(MaxGrant)) {
			return wrongChoice(fmt.Sprintf("the end lies more than %d hours ahead", MaxGrant/time.Hour))
		}
	}
	if err := record(w.Item); err != nil {
		return err
	}
	if d.Choice == ChoiceDeny {
		if d.Code == "" {
			d.Code = "denied"
		}
		now := q.clock.SinceBoot()
		for k, end := range q.nos {
			if now >= end {
				delete(q.nos, k)
			}
		}
		q.nos[w.noKey] = now + keepNo
	}
	q.settleLocked(w, d)
	return nil
}

// Withdraw takes back the cards of a session, with the reason for whoever
// still waits for them.
func (q *Queue) Withdraw(sessionID, code string) {
	q.WithdrawIf(func(i *Item) bool { return i.SessionID == sessionID }, code)
}

// WithdrawIf takes back the cards that match.
func (q *Queue) WithdrawIf(match func(*Item) bool, code string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range slices.Clone(q.items) {
		if match(w.Item) {
			q.settleLocked(w, Decision{Choice: ChoiceDeny, Code: code})
		}
	}
}

func (q *Queue) expire(w *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settleLocked(w, expired)
}

func (q *Queue) settleLocked(w *waiting, d Decision) {
	i := slices.Index(q.items, w)
	if i < 0 {
		return
	}
	q.items = slices.Delete(q.items, i, i+1)
	q.bytes -= len(w.Document)
	w.timer.Stop()
	if w.settled != nil {
		w.settled(d)
	}
	w.decision = d
	close(w.done)
	q.tellLocked()
}

// Changed returns a channel that is closed at the next change of what waits.
// Whoever takes it before looking misses nothing.
func (q *Queue) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// Changes counts the changes of what waits.
func (q *Queue) Changes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changes
}

func (q *Queue) tellLocked() {
	q.changes++
	close(q.changed)
	q.changed = make(chan struct{})
}
