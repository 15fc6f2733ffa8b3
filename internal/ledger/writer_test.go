package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// foreign is a second program's connection to the file, as the sqlite3 shell
// would have one.
func foreign(t testing.TB, in installation) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dataSource(filepath.Join(in.dir, "ledger.db"), url.Values{"mode": {"rw"}}, "busy_timeout(10000)"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// holdDatabase keeps the database from following the journal until release is
// called.
func holdDatabase(t testing.TB, in installation) (release func()) {
	t.Helper()
	db := foreign(t, in)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if _, err := db.Exec("ROLLBACK"); err != nil {
			t.Error(err)
		}
	})
}

// follow brings into the database what the ledger has recorded.
func follow(t testing.TB, l *Ledger) {
	t.Helper()
	if err := l.w.drain.upTo(0); err != nil {
		t.Fatal(err)
	}
}

// faultyStore is the journal's real file with faults.
type faultyStore struct {
	store
	mu      sync.Mutex
	write   error         // instead of writing
	short   int           // writes so much, and says so
	sync    error         // after syncing: failed but persisted
	entered chan struct{} // told before a sync
	hold    chan struct{} // a sync waits for it
	calls   []string
}

// spoil puts faults under a ledger that nobody writes to now.
func spoil(l *Ledger) *faultyStore {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	f := &faultyStore{store: l.w.journal.file, short: -1}
	l.w.journal.file = f
	return f
}

// set changes the faults.
func (f *faultyStore) set(change func(*faultyStore)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faultyStore) mend() {
	f.set(func(f *faultyStore) { f.write, f.short, f.sync = nil, -1, nil })
}

func (f *faultyStore) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("write %d at %d", len(p), off))
	if f.write != nil {
		_, _ = f.store.WriteAt(p[:len(p)/2], off) // what ENOSPC leaves: some of it
		return len(p) / 2, f.write
	}
	if f.short >= 0 {
		return f.store.WriteAt(p[:min(f.short, len(p))], off)
	}
	return f.store.WriteAt(p, off)
}

func (f *faultyStore) Sync() error {
	f.mu.Lock()
	entered, hold := f.entered, f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "sync")
	return errors.Join(f.store.Sync(), f.sync)
}

// occupy begins to write a row whose sync does not come back before release.
func occupy(t *testing.T, l *Ledger) (done chan error, release func()) {
	t.Helper()
	f := spoil(l)
	f.entered, f.hold = make(chan struct{}, 1), make(chan struct{})
	done = make(chan error, 1)
	go func() {
		_, err := l.Append(t.Context(), row("first"))
		done <- err
	}()
	select {
	case <-f.entered:
	case <-time.After(10 * time.Second):
		t.Fatal("the writer did not start")
	}
	return done, sync.OnceFunc(func() { close(f.hold) })
}

// untilGathered returns when n rows wait behind the group that is written.
func untilGathered(t testing.TB, l *Ledger, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		l.w.mu.Lock()
		waiting := len(l.w.gathering.rows)
		l.w.mu.Unlock()
		if waiting >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows wait, not %d", waiting, n)
		}
	}
}

func TestGroupCommitSharesSyncs(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	first, release := occupy(t, l)
	before := l.Commits()
	results := make(chan error, 100)
	for range 100 {
		go func() {
			_, err := l.Begin(t.Context(), newOperation(), row("intent"), nil)
			results <- err
		}()
	}
	untilGathered(t, l, 100)
	release()
	for range 100 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if n := l.Commits() - before; n != 2 {
		t.Fatalf("%d commits for one row and 100 at once", n)
	}
}

// TestOutcomesRideOnTheNextIntent: what nobody waits for costs no sync of its
// own while intents come.
func TestOutcomesRideOnTheNextIntent(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	first, release := occupy(t, l)
	before := l.Commits()
	for range 20 {
		l.AppendSoon(row("soon"))
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Begin(t.Context(), newOperation(), row("intent"), nil)
		done <- err
	}()
	untilGathered(t, l, 21)
	release()
	if err := errors.Join(<-first, <-done); err != nil {
		t.Fatal(err)
	}
	if n := l.Commits() - before; n != 2 {
		t.Fatalf("%d commits", n)
	}
	if n, _ := l.Entries(); n != 22 {
		t.Fatalf("%d entries", n)
	}
}

// TestOneSyncAnAction: intents and outcomes of one caller share their syncs. A
// busy machine may let an outcome wait too long now and then.
func TestOneSyncAnAction(t *testing.T) {
	l := newInstallation(t).open(t)
	const actions = 100
	before := l.Commits()
	for range actions {
		op := newOperation()
		mustBegin(t, l, op)
		l.End(op.ID, action.Completed, "", row("outcome"))
		time.Sleep(time.Millisecond) // the caller takes it in before it asks again
	}
	if n := l.Commits() - before; n > actions*3/2 {
		t.Fatalf("%d commits for %d actions", n, actions)
	}
}

// TestSoonNeedsNobody: a row and an outcome become durable although nothing
// else is ever written.
func TestSoonNeedsNobody(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	op := newOperation()
	mustBegin(t, l, op)
	l.AppendSoon(row("soon"))
	mustEnd(t, l, op.ID, action.Completed)
	if n, _ := l.Entries(); n != 3 {
		t.Fatalf("%d entries", n)
	}
}

// TestWhoWasToldAnOutcomeReadsIt: a lookup right after End must not say
// executing.
func TestWhoWasToldAnOutcomeReadsIt(t *testing.T) {
	l := newInstallation(t).open(t)
	for range 20 {
		op := newOperation()
		op.Unsafe = true
		mustBegin(t, l, op)
		l.End(op.ID, action.Completed, "", row("outcome"))
		if got, _, err := l.Operation(op.ID); err != nil || got.State != action.Completed {
			t.Fatalf("%+v %v", got, err)
		}
		if _, ok, err := l.Unresolved(op.Digest); ok || err != nil {
			t.Fatalf("%v %v", ok, err)
		}
	}
}

// TestForeignLockIsAClearErrorInBoundedTime: a program that holds SQLite's
// lock stops new actions once the database does not follow; what happens
// is recorded meanwhile.
func TestForeignLockIsAClearErrorInBoundedTime(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	l := in.open(t)
	op := newOperation()
	release := holdDatabase(t, in)
	mustBegin(t, l, op)
	start := time.Now()
	for l.Healthy() == nil {
		if time.Since(start) > 3*busyMillis*time.Millisecond {
			t.Fatal("nobody noticed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, err := l.Begin(t.Context(), newOperation(), row("intent"), nil)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "another program holds a lock") {
		t.Fatalf("got %v", err)
	}
	mustEnd(t, l, op.ID, action.Completed)
	if got, _, err := l.Operation(op.ID); err != nil || got.State != action.Completed {
		t.Fatalf("%+v %v", got, err)
	}
	if rows := allRows(t, l, in.opener(t)); len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	release()
	if err := l.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBegin(t, l, newOperation())
}

// TestKeptOutcomesAreWrittenUnasked: without any Probe the writer tries again.
func TestKeptOutcomesAreWrittenUnasked(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	l := in.open(t)
	op := newOperation()
	mustBegin(t, l, op)
	f := spoil(l)
	f.set(func(f *faultyStore) { f.write = syscall.ENOSPC })
	if err := <-l.End(op.ID, action.Completed, "", row("outcome")); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	f.mend()
	for deadline := time.Now().Add(10 * time.Second); l.Healthy() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(l.Healthy())
		}
	}
	if n, _ := l.Entries(); n != 3 { // intent, outcome, ledger_resumed
		t.Fatalf("%d entries", n)
	}
}

// TestCancelledCallerKnowsThatNothingHappened: work of a caller that is gone
// is not begun; what was begun is awaited, since its caller has to know it.
func TestCancelledCallerKnowsThatNothingHappened(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	first, release := occupy(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	op, late := newOperation(), newOperation()
	done := make(chan error, 1)
	go func() {
		_, err := l.Begin(ctx, op, row("intent"), nil)
		done <- err
	}()
	untilGathered(t, l, 1)
	cancel()
	if _, err := l.Begin(ctx, late, row("intent"), nil); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	release()
	if err := errors.Join(<-first, <-done); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := l.Operation(late.ID); ok || err != nil {
		t.Fatalf("the operation of a caller that was gone exists: %v", err)
	}
	if _, err := l.Append(ctx, row("late")); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if n, _ := l.Entries(); n != 2 {
		t.Fatalf("%d entries", n)
	}
}

// TestFloodIsBoundedAndTold: rows beyond the queue are counted, never silent,
// and outcomes are taken all the same.
func TestFloodIsBoundedAndTold(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	op := newOperation()
	mustBegin(t, l, op)
	first, release := occupy(t, l)
	for range maxWaiting + 7 {
		l.AppendSoon(Row{Kind: "refused"})
	}
	outcome := l.End(op.ID, action.Completed, "", row("outcome"))
	if err := l.Healthy(); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("healthy with lost rows: %v", err)
	}
	if _, err := l.Append(t.Context(), row("one more")); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	release()
	if err := errors.Join(<-first, <-outcome); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, r := range allRows(t, l, in.opener(t)) {
		if r.Kind == "ledger_resumed" {
			told++
			if string(r.Outcome) != `{"lost":7,"written_late":0}` {
				t.Fatalf("told %s", r.Outcome)
			}
		}
	}
	if told != 1 || l.Healthy() != nil {
		t.Fatalf("told %d times, %v", told, l.Healthy())
	}
}

// TestForeignRowIsNoPredecessor: nothing goes into the database on top of a
// row that somebody else put there, and nothing is lost.
func TestForeignRowIsNoPredecessor(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	if _, err := foreign(t, in).Exec("INSERT INTO rows VALUES(1, 1, x'00', x'00')"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), row("one")); err != nil {
		t.Fatal(err)
	}
	if err := l.w.drain.upTo(0); err == nil {
		t.Fatal("a fork was written")
	}
	if _, err := l.Begin(t.Context(), newOperation(), row("intent"), nil); !errors.Is(err, ErrTampered) {
		t.Fatalf("an action after a foreign row: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := mustVerify(t, in, in.opener(t)); r.OK {
		t.Fatal("verified")
	}
}

func TestClosedLedger(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	op := newOperation()
	mustBegin(t, l, op)
	l.AppendSoon(row("soon"))
	outcome := l.End(op.ID, action.Completed, "", row("outcome"))
	if err := errors.Join(l.Close(), l.Close(), <-outcome); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), row("late")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Append: %v", err)
	}
	l.AppendSoon(row("late"))
	if err := <-l.End(op.ID, action.Completed, "", row("late")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("End: %v", err)
	}
	if err := l.Rows(t.Context(), in.opener(t), 1, func(Row) error { return nil }); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Rows: %v", err)
	}
	if _, _, err := l.Operation(op.ID); err == nil {
		t.Error("Operation of a closed ledger")
	}
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != 3 {
		t.Errorf("%+v", r)
	}
}

func TestRowsFromAndStop(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	for i := range 3 * rowsAtOnce {
		l.AppendSoon(row(fmt.Sprint(i)))
	}
	o := in.opener(t)
	next := int64(rowsAtOnce)
	err := l.Rows(t.Context(), o, next, func(r Row) error {
		if r.N != next {
			return fmt.Errorf("row %d, want %d", r.N, next)
		}
		next++
		// A row written meanwhile does not prolong the reading.
		l.AppendSoon(row("meanwhile"))
		return nil
	})
	if err != nil || next != 3*rowsAtOnce+1 {
		t.Fatalf("up to %d: %v", next-1, err)
	}
	stop := errors.New("enough")
	if err := l.Rows(t.Context(), o, 1, func(Row) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	stranger := newInstallation(t).opener(t)
	if err := l.Rows(t.Context(), stranger, 1, func(Row) error { return nil }); err == nil {
		t.Fatal("rows opened with a stranger's key")
	}
	if err := l.Rows(t.Context(), nil, 1, func(Row) error { return nil }); err == nil {
		t.Fatal("rows opened without a key")
	}
}

// TestCommitsAreDurable looks at what the writing connection really has; a
// kill cannot tell a synced commit from one in the page cache.
func TestCommitsAreDurable(t *testing.T) {
	l := newInstallation(t).open(t)
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "fullfsync": "1", "checkpoint_fullfsync": "1", "temp_store": "2",
	} {
		var got string
		if err := l.w.drain.conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s: %v", pragma, got, err)
		}
	}
}

// Probe tries now to write what a failed commit left, and reports whether the
// ledger is healthy after it. The ledger does the same by itself, a second later.
func (l *Ledger) Probe(ctx context.Context) error {
	if l.Healthy() == nil {
		return nil
	}
	err := l.w.flush(ctx)
	if err == nil {
		err = l.w.drain.upTo(0)
	}
	if err != nil {
		return fmt.Errorf("probing ledger: %w", err)
	}
	return l.Healthy()
}
