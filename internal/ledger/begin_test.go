package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// atOnce calls f from n goroutines and counts the kinds of its results.
func atOnce(n int, f func(i int) error) (ok int, errs []error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			err := f(i)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ok++
			} else {
				errs = append(errs, err)
			}
		})
	}
	close(start)
	wg.Wait()
	return ok, errs
}

func TestE3_EqualUnsafeActionsDoNotRunTwice(t *testing.T) {
	l := newInstallation(t).open(t)
	digest := []byte("one action")
	var winner atomic.Value
	ok, errs := atOnce(50, func(int) error {
		op := newOperation()
		op.Unsafe, op.Digest = true, digest
		_, err := l.Begin(t.Context(), op, row("intent"), nil)
		if err == nil {
			winner.Store(op.ID)
		}
		return err
	})
	if ok != 1 {
		t.Fatalf("%d of 50 equal actions began", ok)
	}
	for _, err := range errs {
		var u ErrUnresolved
		if !errors.As(err, &u) || u.ID != winner.Load() {
			t.Fatalf("got %v", err)
		}
	}
	safe := newOperation()
	safe.Digest = digest
	mustBegin(t, l, safe) // what may be repeated is not held up
}

// TestE3_IndeterminateStopsRepetition goes through what lets an equal action
// run again, and what does not.
func TestE3_IndeterminateStopsRepetition(t *testing.T) {
	l := newInstallation(t).open(t)
	equal := func() Operation {
		op := newOperation()
		op.Unsafe, op.Digest = true, []byte("one action")
		return op
	}
	refusedBy := func(op Operation, id string) {
		t.Helper()
		var u ErrUnresolved
		if _, err := l.Begin(t.Context(), op, row("intent"), nil); !errors.As(err, &u) || u.ID != id {
			t.Fatalf("got %v, want unresolved %s", err, id)
		}
	}
	first := equal()
	bring(t, l, first, action.Indeterminate)
	refusedBy(equal(), first.ID)

	// An approval about another operation does not cover this one.
	wrong := equal()
	wrong.Repeat, wrong.RepeatOf = true, "op-unknown"
	refusedBy(wrong, first.ID)

	// Approved, it runs; the older one is settled, and it is the new one
	// that holds up others, approved ones too while it executes.
	second := equal()
	second.Repeat, second.RepeatOf = true, first.ID
	intent := mustBegin(t, l, second)
	if got, _, _ := l.Operation(first.ID); got.Resolved != intent || got.State != action.Indeterminate {
		t.Fatalf("the older operation: %+v", got)
	}
	third := equal()
	third.Repeat = true
	refusedBy(third, second.ID)
	mustEnd(t, l, second.ID, action.Indeterminate)
	third.RepeatOf = first.ID // approved before the second became unknown
	refusedBy(third, second.ID)

	// A person says what happened.
	if err := l.Resolve(t.Context(), second.ID, row("resolved")); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := l.Unresolved(second.Digest); ok || err != nil {
		t.Fatalf("still unresolved: %v %v", ok, err)
	}
	if err := l.Resolve(t.Context(), second.ID, row("resolved")); !errors.Is(err, ErrTransition) {
		t.Fatalf("resolved twice: %v", err)
	}
	fourth := equal()
	mustBegin(t, l, fourth)
	mustEnd(t, l, fourth.ID, action.Completed)
	mustBegin(t, l, equal())
}

func TestIdempotencyKeyBelongsToOneOperation(t *testing.T) {
	l := newInstallation(t).open(t)
	ok, errs := atOnce(50, func(i int) error {
		op := newOperation()
		op.Idempotency = []byte("key")
		var err error
		if i%2 == 0 {
			_, err = l.Queue(t.Context(), op, row("queued"))
		} else {
			_, err = l.Begin(t.Context(), op, row("intent"), nil)
		}
		return err
	})
	first, _, _ := l.ByIdempotency([]byte("key"))
	if ok != 1 {
		t.Fatalf("%d operations have the key", ok)
	}
	for _, err := range errs {
		var used ErrKeyUsed
		if !errors.As(err, &used) || used.ID != first.ID {
			t.Fatalf("got %v", err)
		}
	}
	if first.State == action.Queued { // its own key does not stop it
		mustBegin(t, l, first)
	}
	queued := newOperation()
	queued.Idempotency = []byte("another key")
	bring(t, l, queued, action.Queued)
	mustBegin(t, l, queued)
}

func TestBudgetIsCountedBeforeTheAction(t *testing.T) {
	in := newInstallation(t)
	var now atomic.Int64
	now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	l, err := Open(in.dir, Options{AuditPublicKey: in.public, Now: func() time.Time { return time.Unix(0, now.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.CheckOperations(t.Context(), in.opener(t), 0); err != nil {
		t.Fatal(err)
	}
	budget := &Budget{Max: 10, Window: time.Hour}
	begin := func(key string) error {
		op := newOperation()
		op.BudgetKey = []byte(key)
		_, err := l.Begin(t.Context(), op, row("intent"), budget)
		return err
	}
	ok, errs := atOnce(50, func(int) error { return begin("a") })
	if ok != 10 {
		t.Fatalf("%d intents with a budget of 10", ok)
	}
	for _, err := range errs {
		if !errors.Is(err, ErrBudget) {
			t.Fatal(err)
		}
	}
	if err := begin("b"); err != nil {
		t.Fatalf("another key: %v", err)
	}
	now.Add(int64(time.Hour) - 1)
	if err := begin("a"); !errors.Is(err, ErrBudget) {
		t.Fatalf("a moment early: %v", err)
	}
	now.Add(1)
	if err := begin("a"); err != nil {
		t.Fatalf("after the window: %v", err)
	}
	now.Add(-int64(48 * time.Hour)) // a clock set back gives nothing
	if err := begin("a"); !errors.Is(err, ErrBudget) {
		t.Fatalf("after the clock was set back: %v", err)
	}
	budget.Max = 0
	if err := begin("c"); !errors.Is(err, ErrBudget) {
		t.Fatalf("a budget of nothing: %v", err)
	}
}

// TestQueuedOperationsCostNoBudgetUntilTheyBegin: neither they nor refusals.
func TestQueuedOperationsCostNoBudgetUntilTheyBegin(t *testing.T) {
	l := newInstallation(t).open(t)
	budget := &Budget{Max: 1, Window: time.Hour}
	var queued []Operation
	for range 3 {
		op := newOperation()
		op.BudgetKey = []byte("a")
		bring(t, l, op, action.Queued)
		queued = append(queued, op)
	}
	if _, err := l.Begin(t.Context(), queued[0], row("intent"), budget); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Begin(t.Context(), queued[1], row("intent"), budget); !errors.Is(err, ErrBudget) {
		t.Fatal(err)
	}
	if op, _, _ := l.Operation(queued[1].ID); op.State != action.Queued {
		t.Fatalf("%+v", op)
	}
}

func TestA05_ManyWritersOneOrder(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	const writers, each = 200, 5
	var mu sync.Mutex
	seen := map[int64]string{}
	note := func(n int64, what string) error {
		mu.Lock()
		defer mu.Unlock()
		if other, twice := seen[n]; twice {
			return fmt.Errorf("row %d is %s and %s", n, other, what)
		}
		seen[n] = what
		return nil
	}
	_, errs := atOnce(writers, func(i int) error {
		for j := range each {
			kind := fmt.Sprintf("w%d-%d", i, j)
			n, err := l.Append(t.Context(), row(kind))
			if err := errors.Join(err, note(n, kind)); err != nil {
				return err
			}
			op := newOperation()
			if n, err = l.Begin(t.Context(), op, row("begin "+kind), nil); err != nil {
				return err
			}
			if err := errors.Join(note(n, "begin "+kind), <-l.End(op.ID, action.Completed, "", row("end"))); err != nil {
				return err
			}
		}
		return nil
	})
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	rows := allRows(t, l, in.opener(t))
	if len(rows) != writers*each*3 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, r := range rows {
		if r.N != int64(i+1) || (r.Kind != "end" && seen[r.N] != r.Kind) {
			t.Fatalf("row %d is %+v, its writer was told it is %q", i+1, r, seen[r.N])
		}
	}
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != int64(len(rows)) {
		t.Fatalf("%+v", r)
	}
}
