package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// soonDelay is how long a commit that nobody waits for is put off, so
	// that it shares a sync. With the commit itself it stays under 10 ms.
	soonDelay = 5 * time.Millisecond
	// retryDelay is the time between two tries to write what is kept.
	retryDelay = time.Second
	// maxBatch bounds one transaction, maxWaiting the queue before it, and
	// maxKept the rows held after a failed commit.
	maxBatch   = 512
	maxWaiting = 1 << 14
	maxKept    = 1 << 12
)

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

// job is one piece of work for the writer. run is called inside the
// transaction and must refuse, if it does, before its first statement that
// changes something.
type job struct {
	run     func(*batch) error
	done    chan error // one result; nil when nobody listens any more
	urgent  bool       // somebody waits: commit now
	keep    bool       // it has happened: try again after a failed commit
	outcome bool       // lookups must see it
	claimed atomic.Bool
}

// claim decides the race between the writer taking the job and the caller
// withdrawing it.
func (j *job) claim() bool { return j.claimed.CompareAndSwap(false, true) }

func (j *job) finish(err error) {
	if j.done != nil {
		j.done <- err
		j.done = nil
	}
}

// writer owns the one connection that writes. Everything that is queued while
// a commit is under way goes into the next one, so callers share syncs.
type writer struct {
	l    *Ledger
	wake chan struct{}

	mu       sync.Mutex
	waiting  []*job
	firstAt  time.Time // when the oldest waiting job came
	urgent   bool
	closed   bool
	lost     int64 // rows that had to be dropped while nothing could be written
	sick     error
	doubt    error        // the operations in the file are not to be relied on
	outcomes atomic.Int64 // outcomes that no commit has decided yet
	stopped  chan struct{}

	// owned by loop
	conn    *sql.Conn
	stmt    statements
	epoch   *epoch
	known   *known // its checks may be called by anyone
	next    int64  // number of the next row
	kept    []*job
	retryAt time.Time
	lastTry bool
	commits atomic.Int64 // read by anyone
}

func newWriter(l *Ledger, to *recipient) (*writer, error) {
	w := &writer{l: l, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), 4*busyMillis*time.Millisecond)
	defer cancel()
	var err error
	if w.conn, err = l.writeDB.Conn(ctx); err != nil {
		return nil, explain(err)
	}
	fail := func(err error) (*writer, error) {
		return nil, errors.Join(explain(err), w.stmt.close(), w.conn.Close())
	}
	if err := w.stmt.prepare(ctx, w.conn); err != nil {
		return fail(err)
	}
	var lastRow, lastEpoch int64
	if err := w.conn.QueryRowContext(ctx, "SELECT coalesce(max(n), 0) FROM rows").Scan(&lastRow); err != nil {
		return fail(err)
	}
	if err := w.conn.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM epochs").Scan(&lastEpoch); err != nil {
		return fail(err)
	}
	if w.known, err = readKnown(ctx, w.conn); err != nil {
		return fail(err)
	}
	if w.epoch, err = newEpoch(lastEpoch+1, to); err != nil {
		return fail(err)
	}
	w.next = lastRow + 1
	l.entries.Store(lastRow)
	return w, nil
}

// do runs work in the next transaction and returns after its sync. When ctx
// ends first the work is withdrawn; once the writer has taken it, the result
// is awaited, since the caller has to know it.
func (w *writer) do(ctx context.Context, run func(*batch) error) error {
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	j := &job{run: run, done: make(chan error, 1), urgent: true}
	done := j.done
	if err := w.add(j); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if j.claim() {
			return notTaken(ctx.Err())
		}
		return <-done
	}
}

func notTaken(cause error) error {
	return fmt.Errorf("%w in time, and nothing was: %w", ErrUnavailable, cause)
}

// soon hands over work that has no waiting caller.
func (w *writer) soon(run func(*batch) error) {
	_ = w.add(&job{run: run, keep: true}) // add counts what it cannot take
}

// settle hands over the end of an operation.
func (w *writer) settle(run func(*batch) error) <-chan error {
	done := make(chan error, 1)
	w.outcomes.Add(1)
	if err := w.add(&job{run: run, done: done, keep: true, outcome: true}); err != nil {
		w.outcomes.Add(-1)
		done <- err
	}
	return done
}

func (w *writer) add(j *job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	// An outcome is always taken: there are no more of them than intents.
	if len(w.waiting) >= maxWaiting && !j.outcome {
		if j.keep {
			w.lost++
			w.sick = fmt.Errorf("%w: too many rows wait", ErrUnavailable)
		}
		return fmt.Errorf("%w: too many rows wait", ErrUnavailable)
	}
	if len(w.waiting) == 0 {
		w.firstAt = time.Now()
	}
	w.waiting = append(w.waiting, j)
	w.urgent = w.urgent || j.urgent
	if w.urgent || len(w.waiting) == 1 {
		w.ring()
	}
	return nil
}

func (w *writer) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop writes what waits, ends the loop and reports what could not be written.
func (w *writer) stop() error {
	w.mu.Lock()
	w.closed = true
	w.ring()
	w.mu.Unlock()
	<-w.stopped
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sick
}

func (w *writer) healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doubt != nil {
		return w.doubt
	}
	return w.sick
}

// doubted is nil, or why no new action may rely on the operations.
func (w *writer) doubted() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt
}

// setDoubt keeps the first finding of a change by somebody else until the
// broker's end; a check that could not be made is forgotten by the next one.
func (w *writer) setDoubt(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(w.doubt, ErrTampered) {
		w.doubt = err
	}
}

func (w *writer) loop() {
	defer close(w.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		jobs, wait, end := w.take()
		if end {
			return
		}
		if wait == 0 {
			w.commit(jobs)
			continue
		}
		timer.Reset(wait)
		select {
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// take returns the jobs of the next transaction, or how long to wait for
// them. No jobs and no wait means: try what is kept.
func (w *writer) take() (jobs []*job, wait time.Duration, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return w.takeKeptLocked()
	}
	if !w.urgent && !w.closed {
		if left := soonDelay - time.Since(w.firstAt); left > 0 {
			return nil, left, false
		}
	}
	n := min(len(w.waiting), maxBatch)
	jobs = w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	w.urgent = w.urgent && len(w.waiting) > 0
	return jobs, 0, false
}

// takeKeptLocked paces the tries to write what a failed commit left. After
// the last one, at Close, the next start finds intents without outcomes.
func (w *writer) takeKeptLocked() (jobs []*job, wait time.Duration, end bool) {
	pending := len(w.kept) > 0 || w.lost > 0
	switch {
	case w.closed && (!pending || w.lastTry):
		return nil, 0, true
	case w.closed:
		w.lastTry = true
		return nil, 0, false
	case !pending:
		return nil, time.Hour, false
	}
	return nil, max(0, time.Until(w.retryAt)), false
}
