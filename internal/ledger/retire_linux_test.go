package ledger

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

const thisBoot = "3f1c0d6e-0000-4000-8000-000000000000" // of newOperation

// fill writes operations that are begun and completed, many to a group, as
// fast as rows can be sealed; each has two rows.
func fill(t testing.TB, l *Ledger, count int, change func(i int, op *Operation)) {
	t.Helper()
	plain, err := l.encode(row("filled"))
	must(t, err)
	for i := 0; i < count; {
		err := l.w.do(t.Context(), func(b *batch) error {
			for range min(500, count-i) {
				op := newOperation()
				if change != nil {
					change(i, &op)
				}
				is := b.newOperation(op, action.Executing)
				is.began = b.now.UnixNano()
				if !op.CreatedAt.IsZero() {
					is.began = op.CreatedAt.UnixNano()
				}
				b.append(plain, transition{is: &is})
				done := is
				done.state, done.lastRow = string(action.Completed), b.number()
				b.append(plain, transition{was: &is, is: &done})
				i++
			}
			return nil
		})
		must(t, err)
	}
}

// settleDown returns when everything is in the database and nothing is left to
// retire.
func settleDown(t testing.TB, l *Ledger) {
	t.Helper()
	must(t, l.w.drain.upTo(0))
	l.w.retire()
	must(t, l.w.drain.upTo(0))
}

func count(t testing.TB, in installation, query string) (n int) {
	t.Helper()
	db := foreign(t, in)
	defer db.Close()
	must(t, db.QueryRow(query).Scan(&n))
	return n
}

// TestEndedOperationsRetire: a start reads what can still decide, and few
// more; the others are found by their rows.
func TestEndedOperationsRetire(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	unknown := newOperation()
	unknown.Unsafe = true
	bring(t, l, unknown, action.Indeterminate)
	var first string
	fill(t, l, 2*retireAbove, func(i int, op *Operation) {
		if i == 0 {
			first = op.ID
		}
	})
	settleDown(t, l)
	cut := image(t, in)
	must(t, l.Close())
	for _, in := range []installation{in, cut} {
		if n := count(t, in, "SELECT count(*) FROM operations"); n > retireAbove+retireAtOnce+1 {
			t.Errorf("%d operations are hot", n)
		}
		if r := mustVerify(t, in, in.opener(t)); !r.OK {
			t.Fatal(r.Problems)
		}
		l = in.open(t)
		if _, ok, err := l.Operation(first); ok || err != nil {
			t.Errorf("it is hot: %v %v", ok, err)
		}
		op, ok, err := l.Past(t.Context(), in.opener(t), first)
		if !ok || err != nil || op.State != action.Completed || op.Caller != unknown.Caller {
			t.Errorf("the first: %+v %v %v", op, ok, err)
		}
		if _, ok, err := l.Past(t.Context(), in.opener(t), "op-none"); ok || err != nil {
			t.Errorf("none: %v %v", ok, err)
		}
		again := newOperation()
		again.Unsafe, again.Digest = true, unknown.Digest
		var held ErrUnresolved
		if _, err := l.Begin(t.Context(), again, row("intent"), nil); !errors.As(err, &held) {
			t.Errorf("an equal action: %v", err)
		}
		must(t, l.Close())
	}
}

// TestA03_RetiredOperationsAreChecked: what is changed among those that decide
// nothing is noticed by its lookup and by Verify, and nothing gets there that
// decides.
func TestA03_RetiredOperationsAreChecked(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	unknown := newOperation()
	unknown.Unsafe = true
	bring(t, l, unknown, action.Indeterminate)
	fill(t, l, 2*retireAbove, nil)
	settleDown(t, l)
	must(t, l.Close())
	db := foreign(t, in)
	var past string
	must(t, db.QueryRow("SELECT min(id) FROM finished").Scan(&past))
	db.Close()
	for statement, refused := range map[string]bool{
		"UPDATE finished SET caller='x' WHERE id='" + past + "'":                                                                        false,
		"UPDATE finished SET state='denied' WHERE id='" + past + "'":                                                                    false,
		"UPDATE finished SET state='executing', last_row=intent WHERE id='" + past + "'":                                                false,
		"DELETE FROM finished WHERE id='" + past + "'":                                                                                  false,
		"INSERT INTO finished SELECT * FROM operations WHERE state='indeterminate'; DELETE FROM operations WHERE state='indeterminate'": true,
		"INSERT INTO operations SELECT * FROM finished WHERE id='" + past + "'":                                                         true,
		"UPDATE nodes SET hash=zeroblob(32) WHERE level=7 AND i=1":                                                                      false,
		"DELETE FROM nodes WHERE level=6 AND i=2":                                                                                       true,
	} {
		tamper(t, in, func() {
			if r := mustVerify(t, in, in.opener(t)); r.OK {
				t.Errorf("%s: verify found nothing", statement)
			}
			l, err := Open(in.dir, Options{AuditPublicKey: in.public})
			must(t, err)
			defer l.Close()
			if err := l.CheckOperations(t.Context(), in.opener(t), 0); errors.Is(err, ErrTampered) != refused {
				t.Errorf("%s: check %v", statement, err)
			}
			op, ok, err := l.Past(t.Context(), in.opener(t), past)
			deleted := strings.HasPrefix(statement, "DELETE FROM finished")
			switch {
			case strings.HasPrefix(statement, "UPDATE finished") && !errors.Is(err, ErrTampered):
				t.Errorf("%s: lookup %+v %v", statement, op, err)
			case deleted && ok:
				t.Errorf("%s: found", statement)
			}
		}, statement)
	}
}

// TestWhatStillDecidesStays: keys of this boot, and intents that a budget may
// count, are never retired.
func TestWhatStillDecidesStays(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	l.boot, l.w.known.boot = thisBoot, thisBoot
	old := time.Now().Add(-longestBudget - time.Hour)
	fill(t, l, 4*retireAbove, func(i int, op *Operation) {
		switch i {
		case 10:
			op.ID, op.Idempotency = "op-key-here", []byte("key here")
		case 11:
			op.ID, op.Idempotency, op.Caller = "op-key-gone", []byte("key gone"), "another-boot:1"
		case 14:
			op.ID, op.BudgetKey = "op-counts", []byte("budget")
		case 12:
			op.ID, op.BudgetKey, op.CreatedAt = "op-counted", []byte("budget"), old
		}
	})
	settleDown(t, l)
	fill(t, l, 2*retireAbove, nil) // what a budget does not count any more may have ended late
	settleDown(t, l)
	for id, stays := range map[string]bool{"op-key-here": true, "op-key-gone": false, "op-counts": true, "op-counted": false} {
		if _, ok, err := l.Operation(id); ok != stays || err != nil {
			t.Errorf("%s: hot %v, %v", id, ok, err)
		}
	}
	if _, ok, err := l.ByIdempotency([]byte("key here")); !ok || err != nil {
		t.Errorf("the key of a process that may live: %v %v", ok, err)
	}
	op := newOperation()
	op.BudgetKey = []byte("budget")
	if _, err := l.Begin(t.Context(), op, row("intent"), &Budget{Max: 1, Window: time.Hour}); !errors.Is(err, ErrBudget) {
		t.Errorf("the budget: %v", err)
	}
}

// TestStartIsShort: with YETT_LEDGER_OPERATIONS operations, two rows each, a
// start and the check take no longer than with few.
func TestStartIsShort(t *testing.T) {
	operations := 3_000 // twice what a start may read
	if s := os.Getenv("YETT_LEDGER_OPERATIONS"); s != "" {
		operations, _ = strconv.Atoi(s)
	}
	in := newInstallation(t)
	l := in.open(t)
	begin := time.Now()
	fill(t, l, operations, nil)
	settleDown(t, l)
	must(t, l.Close())
	t.Logf("%d operations written in %v", operations, time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	l, err := Open(in.dir, Options{AuditPublicKey: in.public})
	must(t, err)
	opened := time.Since(begin)
	must(t, l.CheckOperations(t.Context(), in.opener(t), 0))
	t.Logf("start %v, with the check %v", opened.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	if n := len(l.w.known.marks); n > retireAbove+2*retireAtOnce {
		t.Errorf("%d operations were read", n)
	}
	if e, _ := l.Entries(); e < int64(2*operations) {
		t.Error(fmt.Sprint("rows: ", e))
	}
}
