package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testClock stands still until it is moved. Wall clock and time since boot move
// apart when only one of them is set.
type testClock struct {
	mu   sync.Mutex
	wall time.Time
	boot time.Duration
}

func newTestClock() *testClock {
	return &testClock{wall: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), boot: time.Hour}
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *testClock) SinceBoot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.boot = c.wall.Add(d), c.boot+d
}

func (c *testClock) setWall(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = t
}

func testQueue() (*Queue, *testClock) {
	c := newTestClock()
	return NewQueue("b_test", c), c
}

// ask is a proposal of a caller about one thing in its one session.
func ask(caller, what string) Proposal {
	return Proposal{Caller: caller, Equal: what, NoKey: caller + "\n" + what, SessionID: "s_" + caller,
		Granting: Granting{Capabilities: []Capability{{Name: what}}}}
}

func mustFile(t *testing.T, q *Queue, p Proposal) *Item {
	t.Helper()
	i, err := q.File(p)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func recorded(*Item) error { return nil }

func deny(t *testing.T, q *Queue, i *Item) {
	t.Helper()
	if err := q.Decide(i.ID(), "", Decision{Choice: ChoiceDeny}, recorded); err != nil {
		t.Fatal(err)
	}
}

func ids(items []*Item) []string {
	var out []string
	for _, i := range items {
		out = append(out, i.ID())
	}
	return out
}

func waits(i *Item) bool {
	select {
	case <-i.Done():
		return false
	default:
		return i.Decision().Choice == ""
	}
}

func wantSettled(t *testing.T, i *Item, want Decision) {
	t.Helper()
	select {
	case <-i.Done():
	default:
		t.Fatal("the card still waits")
	}
	if got := i.Decision(); got != want {
		t.Errorf("decision %+v, want %+v", got, want)
	}
}

// The cards of one caller stand in the order in which they came; between
// callers they stand in turn. A flood of one caller does not push away the
// first card of the next.
func TestCardsStandInTurn(t *testing.T) {
	q, clock := testQueue()
	file := func(caller, what string) string {
		clock.pass(time.Second)
		return mustFile(t, q, ask(caller, what)).ID()
	}
	var flood []string
	for i := range 50 {
		flood = append(flood, file("flood", fmt.Sprint(i)))
	}
	a1, b1, a2 := file("a", "1"), file("b", "1"), file("a", "2")
	flood = append(flood, file("flood", "more"))
	want := slices.Concat(flood[:1], []string{a1, b1}, flood[1:2], []string{a2}, flood[2:])
	if got := ids(q.List()); !slices.Equal(got, want) || q.Len() != len(want) {
		t.Errorf("order %v, want %v", got, want)
	}
	first, err := q.Get(flood[0])
	if err != nil {
		t.Fatal(err)
	}
	deny(t, q, first)
	want = slices.Concat([]string{flood[1], a1, b1, flood[2], a2}, flood[3:])
	if got := ids(q.List()); !slices.Equal(got, want) {
		t.Errorf("after one decision %v, want %v", got, want)
	}
	if _, err := q.Get(first.ID()); !errors.Is(err, ErrUnknown) {
		t.Errorf("a decided card: %v", err)
	}
}

// The memory of all cards is bounded. Whoever holds the most of it gives way to
// a caller that holds less, newest card first, and never the other way round.
func TestC14_CardsOfAllCallersAreBounded(t *testing.T) {
	q, _ := testQueue()
	if q.most != maxAllBytes {
		t.Fatalf("a queue has room for %d bytes", q.most)
	}
	q.most = 1 << 20
	big := func(caller string, n int) Proposal {
		p := ask(caller, fmt.Sprint(n))
		p.Request = &Request{Body: strings.Repeat("x", 8<<10)}
		return p
	}
	kept := mustFile(t, q, big("small", 0))
	var newest *Item
	full := false
	for c := 0; !full; c++ {
		for n := range 60 {
			i, err := q.File(big(fmt.Sprint("flood", c), n))
			if full = err != nil; full {
				if !errors.Is(err, ErrTooMany) {
					t.Fatal(err)
				}
				break
			}
			if c == 0 {
				newest = i
			}
		}
		if c > 20 {
			t.Fatal("there is no bound")
		}
	}
	if q.bytes > q.most || q.bytes < q.most*9/10 {
		t.Errorf("%d bytes are held", q.bytes)
	}
	if other := mustFile(t, q, big("other", 0)); !waits(kept) || !waits(other) {
		t.Error("the card of a caller with one card had to go")
	}
	wantSettled(t, newest, Decision{Choice: ChoiceDeny, Code: "no_approver"})
	q.WithdrawIf(func(*Item) bool { return true }, "revoked")
	if q.bytes != 0 {
		t.Errorf("%d bytes of no card are held", q.bytes)
	}
}

func TestACardSaysWhatItIs(t *testing.T) {
	q, clock := testQueue()
	i := mustFile(t, q, ask("a", "http:x"))
	c := readBack(t, i.Document)
	if c.Format != 1 || c.ApprovalID != i.ID() || c.Tag != Tag(i.ID()) || c.BrokerInstance != "b_test" ||
		!c.ExpiresAt.Equal(clock.Now().Add(CardLife)) || !c.Granting.LongestEnd.Equal(clock.Now().Add(MaxGrant)) {
		t.Errorf("card %+v", c)
	}
	if i.Digest != Digest(i.Document) || !slices.Equal(i.Capabilities, []string{"http:x"}) {
		t.Errorf("item %+v", i)
	}
}

// P01: fifty equal requests are one card; equal ones of another session are
// another card.
func TestP01_EqualRequestsOfOneSessionAreOneCard(t *testing.T) {
	q, _ := testQueue()
	first := mustFile(t, q, ask("a", "x"))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if i, err := q.File(ask("a", "x")); err != nil || i != first {
				t.Errorf("an equal request: %v, %v", i, err)
			}
		})
	}
	wg.Wait()
	other := ask("a", "x")
	other.SessionID = "s_other"
	if mustFile(t, q, other) == first || mustFile(t, q, ask("a", "y")) == first || mustFile(t, q, ask("b", "x")) == first {
		t.Error("another session or another request got the card of the first")
	}
	if n := len(q.List()); n != 4 {
		t.Errorf("%d cards wait, want 4", n)
	}
	deny(t, q, first)
	wantSettled(t, first, Decision{Choice: ChoiceDeny, Code: "denied"})
}

// P01: a no sticks for a minute, for exactly this process and this set.
func TestP01_ANoIsKept(t *testing.T) {
	q, clock := testQueue()
	deny(t, q, mustFile(t, q, ask("a", "x")))
	again := ask("a", "x")
	again.SessionID = "s_later" // another session of the same process
	for range 20 {
		if _, err := q.File(again); !errors.Is(err, ErrKeptNo) {
			t.Fatalf("asked again at once: %v", err)
		}
		clock.pass(keepNo/20 - 1)
	}
	mustFile(t, q, ask("a", "x\ny"))
	mustFile(t, q, ask("b", "x"))
	clock.pass(19)
	if _, err := q.File(again); !errors.Is(err, ErrKeptNo) {
		t.Errorf("asked again a nanosecond before the end: %v", err)
	}
	clock.setWall(clock.Now().Add(-time.Hour))
	clock.pass(1)
	mustFile(t, q, again)
	deny(t, q, mustFile(t, q, ask("c", "x")))
	if len(q.nos) != 1 {
		t.Errorf("%d noes are remembered, want the last", len(q.nos))
	}
}

func TestOnlyANoOfAPersonIsKept(t *testing.T) {
	q, clock := testQueue()
	mustFile(t, q, ask("a", "x"))
	q.Withdraw("s_a", "revoked")
	mustFile(t, q, ask("a", "x"))
	clock.pass(CardLife)
	i := mustFile(t, q, ask("a", "x"))
	if err := q.Decide(i.ID(), i.Digest, Decision{Choice: ChoiceOnce}, recorded); err != nil {
		t.Fatal(err)
	}
	mustFile(t, q, ask("a", "x"))
}

// P01: a flooder gets a hundred cards at once and twenty a second.
func TestP01_CardsOfOneCallerAreLimited(t *testing.T) {
	q, clock := testQueue()
	var cards []*Item
	for i := range maxWaiting {
		cards = append(cards, mustFile(t, q, ask("flooder", fmt.Sprint(i))))
	}
	if _, err := q.File(ask("flooder", "one more")); !errors.Is(err, ErrTooMany) {
		t.Fatalf("card 101: %v", err)
	}
	if i, err := q.File(ask("flooder", "7")); err != nil || i != cards[7] {
		t.Errorf("an equal request of one who may file no more: %v", err)
	}
	mustFile(t, q, ask("neighbour", "x"))

	clock.pass(time.Minute) // the rate is back, the number is not
	if _, err := q.File(ask("flooder", "one more")); !errors.Is(err, ErrTooMany) {
		t.Errorf("with 100 cards waiting: %v", err)
	}
	deny(t, q, cards[0])
	mustFile(t, q, ask("flooder", "one more"))
}

func TestCardsComeBackAtTwentyASecond(t *testing.T) {
	q, clock := testQueue()
	n := 0
	file := func() error {
		n++
		p := ask("flooder", fmt.Sprint(n))
		i, err := q.File(p)
		if err == nil {
			q.Withdraw(p.SessionID, "revoked") // so that only the rate limits
			wantSettled(t, i, Decision{Choice: ChoiceDeny, Code: "revoked"})
		}
		return err
	}
	burst := func() (ok int) {
		for ok <= 1000 && file() == nil {
			ok++
		}
		return ok
	}
	if got := burst(); got != 100 {
		t.Errorf("%d at once, want 100", got)
	}
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{0, 0}, {time.Second/20 - 1, 0}, {1, 1}, {time.Second, 20}, {2500 * time.Millisecond, 50}, {time.Hour, 100}} {
		clock.pass(step.pass)
		if got := burst(); got != step.want {
			t.Errorf("%d after %v, want %d", got, step.pass, step.want)
		}
	}
	clock.pass(time.Hour)
	mustFile(t, q, ask("another", "x"))
	if len(q.paid) != 1 {
		t.Errorf("%d callers are remembered", len(q.paid))
	}
}

func TestWithdraw(t *testing.T) {
	q, _ := testQueue()
	a1, a2, b := mustFile(t, q, ask("a", "1")), mustFile(t, q, ask("a", "2")), mustFile(t, q, ask("b", "1"))
	q.Withdraw("s_a", "locked")
	wantSettled(t, a1, Decision{Choice: ChoiceDeny, Code: "locked"})
	wantSettled(t, a2, Decision{Choice: ChoiceDeny, Code: "locked"})
	if !waits(b) {
		t.Error("the card of another session was withdrawn")
	}
	if err := q.Decide(a1.ID(), a1.Digest, Decision{Choice: ChoiceOnce}, recorded); !errors.Is(err, ErrUnknown) {
		t.Errorf("approving a withdrawn card: %v", err)
	}
	q.WithdrawIf(func(i *Item) bool { return slices.Contains(i.Capabilities, "1") }, "revoked")
	wantSettled(t, b, Decision{Choice: ChoiceDeny, Code: "revoked"})
}

// A card is good until just before its end on the boot clock, whatever the wall
// clock says meanwhile.
func TestACardEndsExactlyAtItsEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		pass time.Duration
		want error
	}{
		{"one nanosecond early", CardLife - 1, nil},
		{"at the end", CardLife, ErrExpired},
		{"one nanosecond late", CardLife + 1, ErrExpired},
		{"one millisecond late", CardLife + time.Millisecond, ErrExpired},
	} {
		for _, d := range []Decision{{Choice: ChoiceOnce}, {Choice: ChoiceDeny, Code: "denied"}} {
			q, clock := testQueue()
			i := mustFile(t, q, ask("a", "x"))
			clock.pass(test.pass)
			clock.setWall(clock.Now().Add(-24 * time.Hour))
			rows := 0
			err := q.Decide(i.ID(), i.Digest, d, func(*Item) error { rows++; return nil })
			if !errors.Is(err, test.want) || (rows == 1) != (test.want == nil) {
				t.Errorf("%s, %s: %v with %d rows", test.name, d.Choice, err, rows)
			}
			if test.want == nil {
				wantSettled(t, i, d)
			} else {
				wantSettled(t, i, expired)
			}
		}
	}
}

// A card's timer stands still while the machine is suspended. What is past its
// end is then settled by whoever looks first, and nobody is given it.
func TestACardThatEndedInASuspensionIsGone(t *testing.T) {
	looks := map[string]func(q *Queue, i *Item){
		"list": func(q *Queue, _ *Item) {
			if n := len(q.List()); n != 0 {
				t.Errorf("%d cards are listed", n)
			}
		},
		"get": func(q *Queue, i *Item) {
			if _, err := q.Get(i.ID()); !errors.Is(err, ErrExpired) {
				t.Errorf("get: %v", err)
			}
		},
		"an equal request": func(q *Queue, i *Item) {
			if again := mustFile(t, q, ask("a", "x")); again == i || !waits(again) {
				t.Error("an equal request got a card that nobody can decide")
			}
		},
		"another request": func(q *Queue, _ *Item) { mustFile(t, q, ask("b", "y")) },
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			q, clock := testQueue()
			i := mustFile(t, q, ask("a", "x"))
			clock.pass(CardLife)
			look(q, i)
			wantSettled(t, i, expired)
		})
	}
}

// bubbleClock is the clock of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() time.Time           { return time.Now() }
func (c bubbleClock) SinceBoot() time.Duration { return time.Since(c.start) }

func TestACardExpiresThoughNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue("b_test", bubbleClock{time.Now()})
		began := time.Now()
		i := mustFile(t, q, ask("a", "x"))
		decided := mustFile(t, q, ask("a", "y"))
		deny(t, q, decided)
		<-i.Done()
		if took := time.Since(began); took != CardLife {
			t.Errorf("it ended after %v", took)
		}
		wantSettled(t, i, expired)
		wantSettled(t, decided, Decision{Choice: ChoiceDeny, Code: "denied"})
	})
}
