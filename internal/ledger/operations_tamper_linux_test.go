package ledger

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// columnChanges sets each column of an operation to something else; the list
// of columns is the file's own.
func columnChanges(t *testing.T, in installation) map[string]string {
	t.Helper()
	db := foreign(t, in)
	defer db.Close()
	rows, err := db.Query("SELECT name, type FROM pragma_table_info('operations')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	changes := map[string]string{}
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		changes[name] = map[string]string{"TEXT": "'x'", "BLOB": "x'0102'", "INTEGER": "1-" + name}[kind]
	}
	if len(changes) != 14 {
		t.Fatalf("columns %v", changes)
	}
	return changes
}

// TestA03_EveryColumnIsReported changes one column of one operation at a time.
func TestA03_EveryColumnIsReported(t *testing.T) {
	in := filled(t)
	o := in.opener(t)
	for column, value := range columnChanges(t, in) {
		for _, id := range []string{"op-completed", "op-denied", "op-indeterminate", "op-repeat", "op-queued", "op-executing"} {
			statement := fmt.Sprintf("UPDATE operations SET %s=%s WHERE id='%s'", column, value, id)
			tamper(t, in, func() {
				problems := strings.Join(mustVerify(t, in, o).Problems, "\n")
				names := strings.Contains(problems, id) && (strings.Contains(problems, column+" is ") ||
					column == "id" || column == "last_row" || column == "resolved")
				if !names {
					t.Errorf("%s: %q", statement, problems)
				}
				switch column { // what the documents say about plain verify
				case "unsafe", "budget_key", "caller", "digest", "idem", "session", "code", "at":
					if r := mustVerify(t, in, nil); !r.OK {
						t.Errorf("%s without the key: %q", statement, r.Problems)
					}
				}
			}, statement)
		}
	}
}

// TestA03_MissingAndAddedOperationsAreNamed, with the audit key.
func TestA03_MissingAndAddedOperationsAreNamed(t *testing.T) {
	in := filled(t)
	for statement, want := range map[string]string{
		"DELETE FROM operations WHERE id='op-completed'": "operation op-completed, which is missing",
		copyOf("op-completed", "op-new"):                 "operation op-new was added or changed",
	} {
		tamper(t, in, func() {
			if p := strings.Join(mustVerify(t, in, in.opener(t)).Problems, "\n"); !strings.Contains(p, want) {
				t.Errorf("%s: %q", statement, p)
			}
			if r := mustVerify(t, in, nil); !r.OK {
				t.Errorf("%s without the key: %q", statement, r.Problems)
			}
		}, statement)
	}
}

func copyOf(id, as string) string {
	return "INSERT INTO operations SELECT '" + as + "', state, code, session, caller, digest, NULL, unsafe, intent, last_row, resolved, budget_key, began, at FROM operations WHERE id='" + id + "'"
}

// decisive is a ledger with an operation that everything may depend on.
func decisive(t *testing.T, in installation) (l *Ledger, op Operation) {
	l = in.open(t)
	op = newOperation()
	op.ID, op.Unsafe, op.Idempotency, op.BudgetKey = "decisive", true, []byte("key"), []byte("budget")
	bring(t, l, op, action.Indeterminate)
	follow(t, l)
	return l, op
}

// TestTamperingUnderARunningLedger changes what a decision depends on, beside
// the broker and with SQLite's locks. The action that it should let through
// does not begin, nor does any other.
func TestTamperingUnderARunningLedger(t *testing.T) {
	equal := func(l *Ledger, op Operation) error {
		again := newOperation()
		again.Unsafe, again.Digest = true, op.Digest
		_, err := l.Begin(background, again, row("intent"), nil)
		return err
	}
	sameKey := func(l *Ledger, op Operation) error {
		again := newOperation()
		again.Idempotency = op.Idempotency
		_, err := l.Begin(background, again, row("intent"), nil)
		return err
	}
	queuedKey := func(l *Ledger, op Operation) error {
		again := newOperation()
		again.Idempotency = op.Idempotency
		_, err := l.Queue(background, again, row("queued"))
		return err
	}
	spends := func(l *Ledger, op Operation) error {
		again := newOperation()
		again.BudgetKey = op.BudgetKey
		_, err := l.Begin(background, again, row("intent"), &Budget{Max: 1, Window: time.Hour})
		return err
	}
	lookup := func(l *Ledger, op Operation) error { _, _, err := l.Operation(op.ID); return err }
	byKey := func(l *Ledger, op Operation) error { _, _, err := l.ByIdempotency(op.Idempotency); return err }
	unresolved := func(l *Ledger, op Operation) error { _, _, err := l.Unresolved(op.Digest); return err }
	resolve := func(l *Ledger, op Operation) error { return l.Resolve(background, op.ID, row("resolved")) }
	for _, c := range []struct {
		set  string
		acts map[string]func(*Ledger, Operation) error
	}{
		{"unsafe=0", map[string]func(*Ledger, Operation) error{"equal": equal, "unresolved": unresolved, "lookup": lookup, "resolve": resolve}},
		{"digest=x'00'", map[string]func(*Ledger, Operation) error{"equal": equal, "unresolved": unresolved}},
		{"state='completed'", map[string]func(*Ledger, Operation) error{"equal": equal, "unresolved": unresolved, "lookup": lookup}},
		{"resolved=1", map[string]func(*Ledger, Operation) error{"equal": equal, "unresolved": unresolved}},
		{"budget_key=NULL", map[string]func(*Ledger, Operation) error{"spends": spends}},
		{"began=1", map[string]func(*Ledger, Operation) error{"spends": spends}},
		{"idem=NULL", map[string]func(*Ledger, Operation) error{"same key": sameKey, "queued": queuedKey, "by key": byKey}},
		{"idem=x'00'", map[string]func(*Ledger, Operation) error{"same key": sameKey, "by key": byKey}},
		{"id='other'", map[string]func(*Ledger, Operation) error{"equal": equal, "same key": sameKey, "lookup": lookup}},
		{"caller='other'", map[string]func(*Ledger, Operation) error{"lookup": lookup, "by key": byKey, "equal": equal}},
		{"code='other'", map[string]func(*Ledger, Operation) error{"lookup": lookup}},
		{"", map[string]func(*Ledger, Operation) error{"equal": equal, "same key": sameKey, "spends": spends, "lookup": lookup}},
	} {
		statement := "UPDATE operations SET " + c.set + " WHERE id='decisive'"
		if c.set == "" {
			statement = "DELETE FROM operations"
		}
		for name, act := range c.acts {
			for _, restarted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, restarted %v", statement, name, restarted), func(t *testing.T) {
					in := newInstallation(t)
					l, op := decisive(t, in)
					if restarted {
						if err := l.Close(); err != nil {
							t.Fatal(err)
						}
						l = in.open(t)
					}
					if _, err := foreign(t, in).Exec(statement); err != nil {
						t.Fatal(err)
					}
					if err := act(l, op); !errors.Is(err, ErrTampered) {
						t.Fatalf("it gave %v", err)
					}
					refusesAll(t, l)
				})
			}
		}
	}
}

// refusesAll: nothing new begins, and the ledger says why; what only tells is
// still recorded.
func refusesAll(t *testing.T, l *Ledger) {
	t.Helper()
	if err := l.Healthy(); !errors.Is(err, ErrTampered) {
		t.Errorf("healthy: %v", err)
	}
	if err := l.Probe(t.Context()); !errors.Is(err, ErrTampered) {
		t.Errorf("probe: %v", err)
	}
	if _, err := l.Begin(t.Context(), newOperation(), row("intent"), nil); !errors.Is(err, ErrTampered) {
		t.Errorf("another action: %v", err)
	}
	if _, err := l.Queue(t.Context(), newOperation(), row("queued")); !errors.Is(err, ErrTampered) && !errors.Is(err, ErrUnchecked) {
		t.Errorf("another action waits: %v", err)
	}
	if _, err := l.Append(t.Context(), row("told")); err != nil {
		t.Errorf("a row: %v", err)
	}
}

// TestAddedOperationIsNoticed where it would hold up an action.
func TestAddedOperationIsNoticed(t *testing.T) {
	in := newInstallation(t)
	l, op := decisive(t, in)
	if _, err := foreign(t, in).Exec(copyOf("decisive", "added")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Unresolved(op.Digest); !errors.Is(err, ErrTampered) {
		t.Fatal(err)
	}
	refusesAll(t, l)
}

// TestE1_OutcomeOfAChangedOperation is recorded, over what this run knows of
// it, and everything fits again.
func TestE1_OutcomeOfAChangedOperation(t *testing.T) {
	for _, statement := range []string{"UPDATE operations SET unsafe=0, state='completed', caller='x'", "DELETE FROM operations"} {
		in := newInstallation(t)
		l := in.open(t)
		op := newOperation()
		op.Unsafe = true
		mustBegin(t, l, op)
		follow(t, l)
		if _, err := foreign(t, in).Exec(statement); err != nil {
			t.Fatal(err)
		}
		mustEnd(t, l, op.ID, action.Indeterminate)
		refusesAll(t, l)
		got, ok, err := l.Operation(op.ID)
		if err != nil || !ok || got.State != action.Indeterminate || !got.Unsafe || got.Caller != op.Caller {
			t.Fatalf("%s: %+v %v", statement, got, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, in, in.opener(t)); !r.OK {
			t.Fatalf("%s: %q", statement, r.Problems)
		}
		l = in.open(t) // what was put back counts again
		if _, ok, err := l.Unresolved(op.Digest); !ok || err != nil {
			t.Fatalf("%s: %v %v", statement, ok, err)
		}
	}
}

// TestChangedBetweenTwoRuns is found at the next unlocking, whatever column it
// is, although recovery came before; and at every later one.
func TestChangedBetweenTwoRuns(t *testing.T) {
	in := filled(t)
	var statements []string
	for column, value := range columnChanges(t, in) {
		if column != "state" { // below, with states that recovery does and does not touch
			statements = append(statements, fmt.Sprintf("UPDATE operations SET %s=%s WHERE id='op-indeterminate'", column, value))
		}
	}
	for _, statement := range append(statements,
		"UPDATE operations SET state='completed' WHERE id='op-executing'",
		"UPDATE operations SET state='executing' WHERE id='op-queued'",
		"UPDATE operations SET unsafe=0 WHERE id='op-executing'",
		"UPDATE operations SET budget_key=x'00' WHERE id='op-executing'",
		"DELETE FROM operations WHERE id='op-executing'",
		"DELETE FROM operations WHERE id='op-completed'",
		"DELETE FROM operations",
		copyOf("op-executing", "op-new"),
		copyOf("op-completed", "op-new"),
		"DELETE FROM rows",
		"DELETE FROM rows WHERE n=(SELECT max(n) FROM rows)",
		"DELETE FROM epochs WHERE id=2",
		"UPDATE epochs SET confirmed=NULL",
		"UPDATE epochs SET confirmed=NULL WHERE id=2",
		"UPDATE epochs SET confirmed=(SELECT confirmed FROM epochs WHERE id=1) WHERE id=2",
	) {
		tamper(t, in, func() {
			for range 3 {
				l := in.openLocked(t)
				for range 2 {
					if err := l.CheckOperations(t.Context(), in.opener(t), 0); !errors.Is(err, ErrTampered) {
						t.Fatalf("%s: %v", statement, err)
					}
				}
				refusesAll(t, l)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if r := mustVerify(t, in, in.opener(t)); r.OK {
					t.Fatalf("%s: verified after recovery", statement)
				}
			}
		}, statement)
	}
}

// TestRunsThatWereNeverUnlocked leave what the next unlocking can check.
func TestRunsThatWereNeverUnlocked(t *testing.T) {
	in := filled(t) // leaves one queued and one executing
	for range 3 {
		l := in.openLocked(t)
		if _, err := l.Begin(t.Context(), newOperation(), row("intent"), nil); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("unchecked, an action: %v", err)
		}
		if _, err := l.Append(t.Context(), row("told")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, in, in.opener(t)); !r.OK {
			t.Fatal(r.Problems)
		}
	}
	l := in.open(t)
	mustBegin(t, l, newOperation())
	l.Close()
	tamper(t, in, func() {
		l := in.openLocked(t)
		defer l.Close()
		if err := l.CheckOperations(t.Context(), in.opener(t), 0); !errors.Is(err, ErrTampered) {
			t.Fatal(err)
		}
	}, "UPDATE operations SET unsafe=0 WHERE id='op-executing'")
}

// TestUnlockedRunWithoutRows does not hide what came before or after it.
func TestUnlockedRunWithoutRows(t *testing.T) {
	in := newInstallation(t)
	l, _ := decisive(t, in)
	for range 3 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = in.open(t)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tamper(t, in, func() {
		l := in.openLocked(t)
		defer l.Close()
		if err := l.CheckOperations(t.Context(), in.opener(t), 0); !errors.Is(err, ErrTampered) {
			t.Fatal(err)
		}
		if r := mustVerify(t, in, in.opener(t)); r.OK {
			t.Fatal("verified")
		}
	}, "UPDATE operations SET unsafe=0")
}

// TestForgedRun is a program with the account's rights and the audit public
// key. It can seal rows as a broker can, but what it does is not taken.
func TestForgedRun(t *testing.T) {
	in := newInstallation(t)
	l, op := decisive(t, in)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	forger := in.openLocked(t)
	forger.checked.Store(true) // its own program
	if err := forger.Resolve(t.Context(), op.ID, row("resolved")); err != nil {
		t.Fatal(err)
	}
	if err := forger.Close(); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if r := mustVerify(t, in, in.opener(t)); r.OK {
			t.Error("verified")
		}
		l := in.openLocked(t)
		defer l.Close()
		if err := l.CheckOperations(t.Context(), in.opener(t), 0); !errors.Is(err, ErrTampered) {
			t.Errorf("checked: %v", err)
		}
	}
	tamper(t, in, check, "SELECT 1")
	tamper(t, in, check, "UPDATE epochs SET confirmed=(SELECT confirmed FROM epochs WHERE id=1)")
	tamper(t, in, check, "UPDATE epochs SET confirmed=randomblob(32) WHERE id=2")
}

// TestCheckTakesTheLedgersOwnKey, and can be made again after another.
func TestCheckTakesTheLedgersOwnKey(t *testing.T) {
	in := filled(t)
	l := in.openLocked(t)
	if err := l.CheckOperations(t.Context(), newInstallation(t).opener(t), 0); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTampered) {
		t.Fatal(err)
	}
	if err := l.Healthy(); err == nil {
		t.Fatal("healthy without a check")
	}
	for range 2 {
		if err := l.CheckOperations(t.Context(), in.opener(t), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Healthy(); err != nil {
		t.Fatal(err)
	}
	mustBegin(t, l, newOperation())
}
