package approval

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func never(t *testing.T) func(*Item) error {
	return func(*Item) error {
		t.Error("a decision that is refused was recorded")
		return nil
	}
}

func TestDecideGivesExactlyWhatWasProven(t *testing.T) {
	q, clock := testQueue()
	d := Decision{Choice: ChoiceUntil, Until: clock.Now().Add(MaxGrant)}
	i := mustFile(t, q, ask("a", "x"))
	if err := q.Decide(i.ID(), i.Digest, d, recorded); err != nil {
		t.Fatal(err)
	}
	wantSettled(t, i, d)
	if !i.Decision().Granted() {
		t.Error("a yes is no yes")
	}
	for _, d := range []Decision{{}, {Choice: ChoiceDeny}, {Choice: "yes"}, {Choice: "Once"}} {
		if d.Granted() {
			t.Errorf("%+v is a yes", d)
		}
	}
}

func TestDecideRefuses(t *testing.T) {
	q, clock := testQueue()
	now := clock.Now()
	i, other := mustFile(t, q, ask("a", "x")), mustFile(t, q, ask("a", "y"))
	until := func(at time.Time) Decision { return Decision{Choice: ChoiceUntil, Until: at} }
	for name, test := range map[string]struct {
		id, digest string
		d          Decision
		want       error
	}{
		"another card's digest": {i.ID(), other.Digest, Decision{Choice: ChoiceOnce}, ErrDigest},
		"no digest":             {i.ID(), "", Decision{Choice: ChoiceOnce}, ErrDigest},
		"until, no digest":      {i.ID(), "", until(now.Add(time.Hour)), ErrDigest},
		"no choice":             {i.ID(), i.Digest, Decision{}, ErrChoice},
		"another choice":        {i.ID(), i.Digest, Decision{Choice: "always"}, ErrChoice},
		"a choice and more":     {i.ID(), i.Digest, Decision{Choice: "once\n"}, ErrChoice},
		"no end":                {i.ID(), i.Digest, until(time.Time{}), ErrChoice},
		"until in the past":     {i.ID(), i.Digest, until(now.Add(-1)), ErrChoice},
		"until now":             {i.ID(), i.Digest, until(now), ErrChoice},
		"over eight hours":      {i.ID(), i.Digest, until(now.Add(MaxGrant + 1)), ErrChoice},
		"a year":                {i.ID(), i.Digest, until(now.AddDate(1, 0, 0)), ErrChoice},
		"no such card":          {"a_1", i.Digest, Decision{Choice: ChoiceOnce}, ErrUnknown},
		"no card at all":        {"", i.Digest, Decision{Choice: ChoiceDeny}, ErrUnknown},
	} {
		if err := q.Decide(test.id, test.digest, test.d, never(t)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if !waits(i) || !waits(other) {
			t.Fatalf("%s: a card was decided", name)
		}
	}
}

// A decision that cannot be recorded is none: the card goes on waiting.
func TestADecisionThatCannotBeRecordedIsNone(t *testing.T) {
	q, _ := testQueue()
	p := ask("a", "x")
	p.Settled = func(Decision) { t.Error("a decision took effect without a record") }
	i := mustFile(t, q, p)
	full := errors.New("the disk is full")
	for _, d := range []Decision{{Choice: ChoiceOnce}, {Choice: ChoiceDeny}} {
		err := q.Decide(i.ID(), i.Digest, d, func(shown *Item) error {
			if shown != i {
				t.Error("another card is recorded")
			}
			return full
		})
		if !errors.Is(err, full) || !waits(i) || len(q.List()) != 1 {
			t.Fatalf("%s: %v, waits %v", d.Choice, err, waits(i))
		}
	}
	if mustFile(t, q, p) != i {
		t.Error("the no that was not recorded is kept")
	}
}

// What a decision gives is in place before anybody can see the decision.
func TestSettledIsToldFirst(t *testing.T) {
	ways := map[string]func(q *Queue, clock *testClock, i *Item){
		"decided": func(q *Queue, _ *testClock, i *Item) {
			q.Decide(i.ID(), i.Digest, Decision{Choice: ChoiceOnce}, func(*Item) error {
				if !waits(i) {
					t.Error("the decision can be seen before it is recorded")
				}
				return nil
			})
		},
		"withdrawn": func(q *Queue, _ *testClock, i *Item) { q.Withdraw(i.SessionID, "revoked") },
		"expired":   func(q *Queue, clock *testClock, i *Item) { clock.pass(CardLife); q.List() },
		"by timer":  func(q *Queue, _ *testClock, i *Item) { q.expire(q.items[0]) },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			q, clock := testQueue()
			var i *Item
			var told []Decision
			p := ask("a", "x")
			p.Settled = func(d Decision) {
				if !waits(i) {
					t.Error("the decision could be seen before its effect")
				}
				told = append(told, d)
			}
			i = mustFile(t, q, p)
			way(q, clock, i)
			if len(told) != 1 || told[0].Choice == "" {
				t.Fatalf("told %+v", told)
			}
			wantSettled(t, i, told[0])
		})
	}
}

func TestACardIsDecidedOnce(t *testing.T) {
	q, _ := testQueue()
	i := mustFile(t, q, ask("a", "x"))
	deny(t, q, i)
	if err := q.Decide(i.ID(), i.Digest, Decision{Choice: ChoiceOnce}, never(t)); !errors.Is(err, ErrUnknown) {
		t.Errorf("a yes after the no: %v", err)
	}
	q.Withdraw(i.SessionID, "revoked")
	wantSettled(t, i, Decision{Choice: ChoiceDeny, Code: "denied"})
}

func TestOfManyDecisionsOneCounts(t *testing.T) {
	for range 20 {
		q, clock := testQueue()
		var told, rows, won atomic.Int32
		p := ask("a", "x")
		p.Settled = func(Decision) { told.Add(1) }
		i := mustFile(t, q, p)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for n := range 60 {
			wg.Go(func() {
				<-start
				d := []Decision{{Choice: ChoiceOnce}, {Choice: ChoiceDeny}, {Choice: ChoiceUntil, Until: clock.Now().Add(time.Hour)}}[n%3]
				if q.Decide(i.ID(), i.Digest, d, func(*Item) error { rows.Add(1); return nil }) == nil {
					won.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if told.Load() != 1 || rows.Load() != 1 || won.Load() != 1 {
			t.Fatalf("%d effects, %d rows, %d answers of success", told.Load(), rows.Load(), won.Load())
		}
	}
}

// Everything at once, for the race detector: each card ends exactly once, and
// whoever waits for it sees its decision.
func TestEverythingAtOnce(t *testing.T) {
	q, clock := testQueue()
	var told atomic.Int32
	var cards sync.Map
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for n := range 60 {
				p := ask(fmt.Sprint("p", c), fmt.Sprint(n%20))
				p.Settled = func(Decision) { told.Add(1) }
				i, err := q.File(p)
				if err != nil {
					continue
				}
				cards.Store(i, nil)
				switch n % 4 {
				case 0:
					q.Decide(i.ID(), i.Digest, Decision{Choice: ChoiceOnce}, recorded)
				case 1:
					q.Decide(i.ID(), "", Decision{Choice: ChoiceDeny}, recorded)
				case 2:
					q.WithdrawIf(func(w *Item) bool { return w == i }, "revoked")
				}
				if n%4 != 3 {
					<-i.Done()
					if i.Decision().Choice == "" {
						t.Error("a card is done without a decision")
					}
				}
			}
		})
		wg.Go(func() {
			for range 60 {
				for _, i := range q.List() {
					i.Decision()
				}
				clock.pass(time.Millisecond)
			}
		})
	}
	wg.Wait()
	q.WithdrawIf(func(*Item) bool { return true }, "broker_stopped")
	n := 0
	cards.Range(func(i, _ any) bool {
		n++
		return !waits(i.(*Item))
	})
	if len(q.List()) != 0 || n == 0 || n != int(told.Load()) {
		t.Errorf("%d cards wait; of %d cards %d ends were told", len(q.List()), n, told.Load())
	}
}

// What a card does not offer cannot be chosen: one action is approved once.
func TestAnActionIsNotApprovedForATime(t *testing.T) {
	q, clock := testQueue()
	p := ask("a", "x")
	p.Request = &Request{OperationID: "op_1"}
	i := mustFile(t, q, p)
	d := Decision{Choice: ChoiceUntil, Until: clock.Now().Add(time.Hour)}
	if err := q.Decide(i.ID(), i.Digest, d, never(t)); !errors.Is(err, ErrChoice) || !waits(i) {
		t.Errorf("%v, waits %v", err, waits(i))
	}
	if err := q.Decide(i.ID(), i.Digest, Decision{Choice: ChoiceOnce}, recorded); err != nil {
		t.Error(err)
	}
}
