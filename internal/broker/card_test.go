package broker

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// cardClock stands still until it is moved.
type cardClock struct {
	mu   sync.Mutex
	boot time.Duration
}

func (c *cardClock) Now() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) } // set back all the time

func (c *cardClock) SinceBoot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

func (c *cardClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot += d
}

// cardBroker is a broker with a ledger and a queue, one channel and its session.
func cardBroker(t *testing.T) (*channel, *session.Session, *cardClock) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(t.TempDir(), ledger.Options{AuditPublicKey: key.PublicKey().Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	opener, err := ledger.NewOpener(key.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.CheckOperations(t.Context(), opener, 0); err != nil {
		t.Fatal(err)
	}
	clock := &cardClock{boot: time.Hour}
	b := &Broker{Config: Config{Clock: clock, Ledger: l, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, ops: newOperations(),
		queue: approval.NewQueue("b_test", clock), sessions: session.NewTable(clock)}
	ch := &channel{b: b, id: session.NewChannel(), closed: make(chan struct{}), repeats: map[string]*approval.Item{}}
	ch.operator = newOperator(b, ch)
	s := b.sessions.Make(ch.id, action.Caller{Unit: action.UnitProcess}, session.Active)
	b.sessions.Insert(ch.id, s, "")
	return ch, s, clock
}

// filed files the card of an operation.
func filed(t *testing.T, ch *channel, s *session.Session, op *operation) *approval.Item {
	t.Helper()
	item, err := ch.b.queue.File(approval.Proposal{Caller: "p", Equal: op.id, NoKey: op.id, SessionID: s.ID, Request: &approval.Request{OperationID: op.id}})
	if err != nil {
		t.Fatal(err)
	}
	op.card = item
	return item
}

func sayYes(t *testing.T, ch *channel, i *approval.Item) {
	t.Helper()
	if err := ch.b.queue.Decide(i.ID(), i.Digest, approval.Decision{Choice: approval.ChoiceOnce}, func(*approval.Item) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func cardOperation(ch *channel, s *session.Session) *operation {
	op := &operation{id: action.NewOrderedID("op_", time.Now()), ch: ch, session: s, subject: "p", request: action.Request{Capability: "c"},
		state: action.Queued, done: make(chan struct{}), parked: make(chan struct{})}
	op.record = ledger.Operation{ID: op.id, Session: s.ID, Caller: "p", State: action.Queued, Digest: []byte(op.id)}
	return op
}

// A yes that nobody applied while its card lasted runs nothing afterwards.
func TestAYesIsNotAppliedAfterItsCard(t *testing.T) {
	ch, s, clock := cardBroker(t)
	op := cardOperation(ch, s)
	ctx, cancel := context.WithTimeout(t.Context(), ledgerTime)
	defer cancel()
	if _, err := ch.b.Ledger.Queue(ctx, op.record, op.row("queued", nil)); err != nil {
		t.Fatal(err)
	}
	op.setDurable()
	item := filed(t, ch, s, op)
	sayYes(t, ch, item)
	clock.pass(approval.CardLife)
	got, fail := ch.awaitDecision(op, 7, 0)
	if fail != nil {
		t.Fatal(fail)
	}
	if r := got.(wire.OperationResult); r.State != string(action.Denied) || r.Reason == nil || r.Reason.Code != wire.ReasonApprovalExpired || r.Sequence != 7 {
		t.Errorf("%+v", r)
	}
}

// An approved repetition runs once, before the end of its card.
func TestAnApprovedRepetitionIsTakenOnceAndInTime(t *testing.T) {
	for _, test := range []struct {
		pass time.Duration
		want bool
	}{{0, true}, {approval.CardLife - 1, true}, {approval.CardLife, false}, {approval.CardLife + time.Millisecond, false}} {
		ch, s, clock := cardBroker(t)
		item := filed(t, ch, s, cardOperation(ch, s))
		ch.repeats["x"] = item
		if ch.takeRepeat("x") {
			t.Fatal("a repetition without a decision")
		}
		sayYes(t, ch, item)
		clock.pass(test.pass)
		if got := ch.takeRepeat("x"); got != test.want {
			t.Errorf("after %v: %v", test.pass, got)
		}
		if ch.takeRepeat("x") {
			t.Errorf("after %v: twice", test.pass)
		}
	}
}

// One proof opens reading for a quarter of an hour by the clock that goes on
// while the machine sleeps, and a challenge is answered within five minutes.
func TestReadingAndNoncesEnd(t *testing.T) {
	ch, _, clock := cardBroker(t)
	if ch.mayRead() {
		t.Fatal("reading is open without a proof")
	}
	ch.openReading()
	clock.pass(15*time.Minute - 1)
	if !ch.mayRead() {
		t.Error("reading ended early")
	}
	clock.pass(1)
	if ch.mayRead() {
		t.Error("reading is open after a quarter of an hour")
	}
	early, late := ch.newNonce(), ch.newNonce()
	clock.pass(5*time.Minute - 1)
	if !ch.takeNonce(early) || ch.takeNonce(early) {
		t.Error("a nonce is not for one use within five minutes")
	}
	clock.pass(1)
	if ch.takeNonce(late) {
		t.Error("a nonce was taken after five minutes")
	}
}

// The list of cards gives one card by its id, however many stand before it, and
// says how often it was asked for to whoever may read.
func TestOneCardIsFoundInALongQueue(t *testing.T) {
	ch, s, _ := cardBroker(t)
	for i := range 12 {
		p := approval.Proposal{Caller: string(rune('a' + i)), Equal: "x", NoKey: "x", SessionID: s.ID}
		wide := make([]rune, 16<<10)
		for k := range wide {
			wide[k] = '\U00020000'
		}
		p.Request = &approval.Request{Body: string(wide), Stdin: string(wide), Command: string(wide)}
		p.SessionID = string(rune('a' + i))
		if _, err := ch.b.queue.File(p); err != nil {
			t.Fatal(err)
		}
	}
	last := approval.Proposal{Caller: "z", Equal: "z", NoKey: "z", SessionID: s.ID}
	item, err := ch.b.queue.File(last)
	if err != nil {
		t.Fatal(err)
	}
	ch.b.queue.File(last)
	ch.openReading()
	got, fail := ch.listCards(wire.ApprovalList{ApprovalID: item.ID()})
	if fail != nil {
		t.Fatal(fail)
	}
	items := got.(wire.List[wire.Approval]).Items
	if len(items) != 1 || items[0].CardDigest != item.Digest || !json.Valid(items[0].Card) || items[0].Asked != 2 || items[0].SessionID != s.ID {
		t.Errorf("%+v", items)
	}
}

// TestAGrantIsSaidToEndWithItsSession: a person who allows more time than the
// session has left is told the end that there is.
func TestAGrantIsSaidToEndWithItsSession(t *testing.T) {
	ch, s, _ := cardBroker(t)
	item := &approval.Item{SessionID: s.ID, Capabilities: []string{"c"}}
	d := approval.Decision{Choice: approval.ChoiceUntil, Until: ch.b.Clock.Now().Add(100 * time.Hour)}
	s.Grant(item.Capabilities, d.Until, false, false)
	if got, want := ch.b.givenUntil(item, d), s.Status().ExpiresAt; !got.Equal(want) {
		t.Errorf("said to end at %v, not %v", got, want)
	}
	item.SessionID = "s_gone"
	if got := ch.b.givenUntil(item, d); !got.Equal(d.Until) {
		t.Errorf("of a session that has gone: %v", got)
	}
}
