package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// soonDelay is how long a group that nobody waits for is put off, so that
	// it shares a sync. With the sync itself it stays under 10 ms.
	soonDelay = 5 * time.Millisecond
	// retryDelay is the time between two tries to write what is kept.
	retryDelay = time.Second
	// maxWaiting bounds the rows of a group that is gathered while another
	// one is written, and maxKept the rows held after a failed one.
	maxWaiting = 1 << 14
	maxKept    = 1 << 12
)

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

// job is one piece of work for the writer. run must refuse, if it does,
// before its first change.
type job struct {
	run     func(*batch) error
	done    chan error // one result; nil when nobody listens any more
	keep    bool       // it has happened: try again after a failed write
	outcome bool       // lookups must see it
}

func (j *job) finish(err error) {
	if j.done != nil {
		j.done <- err
		j.done = nil
	}
}

// group is what one sync makes durable. Its rows have their effect on what
// this run knows from the moment that they are in it; who asked for them is
// told when they are durable.
type group struct {
	rows  []loggedRow
	bytes int // of the records
	jobs  []*job
	since time.Time // when the first row came
	late  int64     // rows that had to be dropped before, which this group tells of

	urgent bool          // somebody waits
	lead   chan struct{} // wakes one of those who wait, to write the group
	done   chan struct{} // closed with err set
	err    error
}

func newWriter(l *Ledger, to *recipient) (*writer, error) {
	w := &writer{l: l, gathering: newGroup(), undrained: map[string]undrained{}}
	w.idle.L = &w.mu
	w.soon = time.AfterFunc(time.Hour, w.overdue)
	d := &w.drain
	d.w, d.kick, d.quit, d.done = w, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 4*busyMillis*time.Millisecond)
	defer cancel()
	var err error
	if d.conn, err = l.writeDB.Conn(ctx); err != nil {
		return nil, explain(err)
	}
	if err = w.start(ctx, to); err != nil {
		return nil, errors.Join(explain(err), w.close())
	}
	return w, nil
}

// start reads what earlier runs left, once the journal is in the database.
func (w *writer) start(ctx context.Context, to *recipient) error {
	d := &w.drain
	if err := d.stmt.prepare(ctx, d.conn); err != nil {
		return err
	}
	const newest = "SELECT coalesce(max(n), 0) FROM rows"
	var lastRow, lastEpoch int64
	err := d.conn.QueryRowContext(ctx, newest).Scan(&lastRow)
	if err == nil {
		err = w.startTree(ctx, lastRow) // the journal's rows come on top
	}
	if err == nil {
		w.found, err = w.takeJournal(ctx)
	}
	if err == nil {
		err = d.conn.QueryRowContext(ctx, newest).Scan(&lastRow)
	}
	if err != nil {
		return err
	}
	if err := d.conn.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM epochs").Scan(&lastEpoch); err != nil {
		return err
	}
	if w.known, err = readKnown(ctx, d.conn, w.l.boot); err != nil {
		return err
	}
	if w.epoch, err = newEpoch(lastEpoch+1, to); err != nil {
		return err
	}
	if err := d.stmt.version.QueryRow().Scan(&d.version); err != nil {
		return err
	}
	w.next = lastRow + 1
	d.through.Store(lastRow)
	w.l.entries.Store(lastRow)
	return w.watch.open(w.l.readDB)
}

// startTree reads where the tree of the rows goes on. Nodes that somebody
// changed are computed anew.
func (w *writer) startTree(ctx context.Context, size int64) (err error) {
	d := &w.drain
	if d.tree, err = readTree(ctx, d.conn, size); !errors.Is(err, errNodes) {
		return err
	}
	w.setDoubt(fmt.Errorf("%w: %w", ErrTampered, err))
	tx, err := d.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := writeNodes(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	d.tree, err = readTree(ctx, d.conn, size)
	if errors.Is(err, errNodes) { // rows are missing: the check of the head says so too
		d.tree, err = tree{size: size}, nil
	}
	return err
}

// close lets go of everything; the drain does not run any more.
func (w *writer) close() error {
	w.watch.close()
	return errors.Join(w.journal.close(), w.drain.stmt.close(), w.drain.conn.Close())
}

func newGroup() *group { return &group{lead: make(chan struct{}, 1), done: make(chan struct{})} }

// writer gives rows their numbers and groups them. Whoever waits for a group
// writes it, if nobody else writes: a single caller meets no other goroutine.
type writer struct {
	l     *Ledger
	epoch *epoch
	drain drain
	watch watch

	found []Row // what the start tells of the journal

	// owned by whoever leads
	journal *journal

	mu        sync.Mutex
	known     *known // its checks may be called by anyone
	next      int64  // number of the next row
	gathering *group
	leading   bool                 // somebody writes a group
	idle      sync.Cond            // somebody stopped leading
	pending   []loggedRow          // durable, not in the database
	undrained map[string]undrained // operations that the database does not have so
	soon      *time.Timer          // writes a group that nobody waits for, or tries again
	armed     bool
	closed    bool
	kept      []*job
	lost      int64 // rows that had to be dropped while nothing could be written
	sick      error // nothing can be written
	stuck     error // the database does not follow the journal
	retryAt   time.Time
	doubt     error // the operations in the file are not to be relied on

	beside sync.WaitGroup // what ends with the drain

	generation atomic.Uint64 // of the journal
	commits    atomic.Int64
}

// undrained is an operation as row n left it.
type undrained struct {
	columns
	n int64
}

// do runs work and returns when its rows are durable. A refusal is returned
// at once. Once there are rows the result is awaited, whatever ctx does: the
// caller has to know it.
func (w *writer) do(ctx context.Context, run func(*batch) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w in time, and nothing was: %w", ErrUnavailable, err)
	}
	w.mu.Lock()
	g, err := w.enterLocked(&job{run: run})
	if err != nil {
		w.mu.Unlock()
		return err
	}
	return w.awaitLocked(g)
}

// flush returns when everything that was handed over is durable. While
// nothing can be written it is the next try.
func (w *writer) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w in time: %w", ErrUnavailable, err)
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errClosed
	}
	w.enterKeptLocked()
	return w.awaitLocked(w.gathering)
}

// handOver takes work that has no waiting caller.
func (w *writer) handOver(j *job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sick != nil && !w.closed && time.Now().Before(w.retryAt) {
		err := w.sick
		w.keepLocked([]*job{j})
		j.finish(err)
		return nil
	}
	g, err := w.enterLocked(j)
	if err != nil {
		return err
	}
	if len(g.rows) == 0 {
		j.finish(nil)
		return nil
	}
	w.armLocked(soonDelay)
	return nil
}

// settle hands over the end of an operation.
func (w *writer) settle(run func(*batch) error) <-chan error {
	done := make(chan error, 1)
	if err := w.handOver(&job{run: run, done: done, keep: true, outcome: true}); err != nil {
		done <- err
	}
	return done
}

// enterLocked runs a job in the group that is gathered, after what an earlier
// failure left.
func (w *writer) enterLocked(j *job) (*group, error) {
	if w.closed {
		return nil, errClosed
	}
	// An outcome is always taken: there are no more of them than intents.
	if len(w.gathering.rows) >= maxWaiting && !j.outcome {
		err := fmt.Errorf("%w: too many rows wait", ErrUnavailable)
		if j.keep {
			w.lost++
			w.sick = err
		}
		return nil, err
	}
	w.enterKeptLocked()
	return w.gathering, w.runLocked(j)
}

func (w *writer) enterKeptLocked() {
	if len(w.kept) == 0 && w.lost == 0 {
		return
	}
	kept, lost := w.kept, w.lost
	w.kept, w.lost = nil, 0
	w.gathering.late += lost
	for _, j := range kept {
		_ = w.runLocked(j) // who waited was told when it failed first
	}
	b := batch{w: w, now: w.l.now()}
	b.append(w.resumed(len(kept), lost))
}

func (w *writer) runLocked(j *job) error {
	b := batch{w: w, now: w.l.now()}
	before := len(w.gathering.rows)
	if err := j.run(&b); err != nil {
		return err
	}
	if len(w.gathering.rows) > before {
		w.gathering.jobs = append(w.gathering.jobs, j)
	}
	return nil
}

// awaitLocked returns when g is decided; it unlocks. Where nobody writes, the
// caller does.
func (w *writer) awaitLocked(g *group) error {
	g.urgent = true
	if !w.leading {
		w.leadLocked()
		w.mu.Unlock()
		return g.err
	}
	w.mu.Unlock()
	select {
	case <-g.done:
	case <-g.lead:
		w.mu.Lock()
		if w.gathering == g && !w.leading {
			w.leadLocked()
		}
		w.mu.Unlock()
		<-g.done
	}
	return g.err
}

// leadLocked writes the group that was gathered. The lock is not held
// meanwhile; the next group gathers.
func (w *writer) leadLocked() {
	g := w.gathering
	if len(g.rows) == 0 && w.sick == nil { // all of it is durable
		close(g.done)
		w.gathering = newGroup()
		return
	}
	w.gathering, w.leading = newGroup(), true
	w.mu.Unlock()
	err := w.write(g)
	w.mu.Lock()
	w.leading = false
	if err != nil {
		w.failLocked(g, unavailable(err))
	} else {
		w.publishLocked(g)
	}
	close(g.done)
	w.idle.Broadcast()
	if next := w.gathering; next.urgent {
		next.lead <- struct{}{}
	} else if w.sick != nil {
		w.armLocked(time.Until(w.retryAt))
	} else if len(next.rows) > 0 {
		w.armLocked(soonDelay)
	}
}

// write makes a group durable: in the journal, or, where it fits in no
// segment, in the database.
func (w *writer) write(g *group) error {
	if len(g.rows) == 0 {
		return w.journal.probe()
	}
	size := groupSize(g.bytes)
	if !w.journal.fits(size) {
		return w.drain.around(g.rows, nil)
	}
	// The place of a full segment is free when the database has its rows.
	if n := w.journal.needsFree(size); n > w.drain.through.Load() {
		if err := w.drain.upTo(n); err != nil {
			return err
		}
	}
	if err := w.journal.write(g.rows, size); err != nil {
		return err
	}
	w.generation.Store(w.journal.generation)
	return nil
}

// publishLocked tells everybody that a group is durable.
func (w *writer) publishLocked(g *group) {
	if w.lost == 0 && len(w.kept) == 0 {
		w.sick = nil
	}
	if len(g.rows) > 0 {
		w.commits.Add(1)
		last := g.rows[len(g.rows)-1].n
		w.l.entries.Store(last)
		if last > w.drain.through.Load() { // not if it went into the database
			w.pending = append(w.pending, g.rows...)
			w.drain.ring()
		} else {
			w.forgetDrainedLocked(g.rows)
		}
	}
	for _, j := range g.jobs {
		j.finish(nil)
	}
}

// failLocked takes back a group, and the one that was gathered on top of it.
// What tells of something that has happened is kept for the next try.
func (w *writer) failLocked(g *group, err error) {
	next := w.gathering
	w.takeBackLocked(next)
	w.takeBackLocked(g)
	w.sick = err
	w.retryAt = time.Now().Add(retryDelay)
	w.lost += g.late + next.late
	w.keepLocked(append(g.jobs, next.jobs...))
	w.gathering = newGroup()
	// Only now: whoever hears of a lost outcome finds the ledger unhealthy.
	for _, j := range append(g.jobs, next.jobs...) {
		j.finish(err)
	}
	g.err, next.err = err, err
	if next != g {
		close(next.done)
	}
	w.armLocked(retryDelay)
}

func (w *writer) keepLocked(jobs []*job) {
	rows := 0
	for _, j := range w.kept {
		if !j.outcome {
			rows++
		}
	}
	for _, j := range jobs {
		switch {
		case j.outcome: // there are no more of them than intents
			w.kept = append(w.kept, j)
		case j.keep && rows < maxKept:
			w.kept = append(w.kept, j)
			rows++
		case j.keep:
			w.lost++
		}
	}
}

func (w *writer) takeBackLocked(g *group) {
	for i := len(g.rows) - 1; i >= 0; i-- {
		r := &g.rows[i]
		for k := len(r.changes) - 1; k >= 0; k-- {
			c := &r.changes[k]
			w.known.takeBack(c)
			delete(w.undrained, c.is.id)
			if c.was != nil && c.was.newest() > w.drain.through.Load() {
				w.undrained[c.was.id] = undrained{*c.was, c.was.newest()}
			}
		}
		w.next = r.n
	}
}

// armLocked sees to it that a group that nobody waits for is written.
func (w *writer) armLocked(after time.Duration) {
	if !w.armed && !w.closed {
		w.armed = true
		w.soon.Reset(after)
	}
}

// overdue is called by the timer.
func (w *writer) overdue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	g := w.gathering
	switch {
	case w.closed || w.leading: // who leads arms it again
	case w.sick != nil:
		if left := time.Until(w.retryAt); left > 0 {
			w.armLocked(left)
			return
		}
		w.enterKeptLocked()
		w.leadLocked()
	case len(g.rows) > 0:
		if left := soonDelay - time.Since(g.since); left > 0 {
			w.armLocked(left)
			return
		}
		w.leadLocked()
	}
}

// stop writes what waits and reports what could not be written. After the
// last try the next start finds intents without outcomes.
func (w *writer) stop() error {
	w.mu.Lock()
	w.closed = true
	for w.leading {
		w.idle.Wait()
	}
	w.enterKeptLocked()
	if len(w.gathering.rows) > 0 {
		w.leadLocked()
	}
	err := w.sick
	w.mu.Unlock()
	w.soon.Stop()
	w.drain.stop()
	return err
}

func (w *writer) healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range []error{w.doubt, w.sick, w.stuck} {
		if err != nil {
			return err
		}
	}
	return nil
}

// doubted is nil, or why no new action may rely on the operations.
func (w *writer) doubted() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt
}

func (w *writer) tampered() bool { return errors.Is(w.doubted(), ErrTampered) }

// setDoubt keeps the first finding of a change by somebody else until the
// broker's end; a check that could not be made is forgotten by the next one.
func (w *writer) setDoubt(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setDoubtLocked(err)
}

func (w *writer) setDoubtLocked(err error) {
	if !errors.Is(w.doubt, ErrTampered) {
		w.doubt = err
	}
}

// look notices whether somebody else has changed the database.
func (w *writer) look() {
	if w.watch.foreign() {
		w.setDoubt(errForeignCommit)
	}
}

// undrainedRows are the oldest rows that the database does not have.
func (w *writer) undrainedRows() ([]loggedRow, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.pending), maxDrain)
	return w.pending[:n:n], w.generation.Load()
}

func (w *writer) journalGeneration() uint64 { return w.generation.Load() }

// drained takes rows that the database has now off the list.
func (w *writer) drained(rows []loggedRow, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stuck = nil
	if err != nil {
		w.stuck = unavailable(err)
		return
	}
	w.forgetDrainedLocked(rows)
	clear(w.pending[:len(rows)]) // the same memory
	if w.pending = w.pending[len(rows):]; len(w.pending) == 0 {
		w.pending = nil
	}
}

func (w *writer) forgetDrainedLocked(rows []loggedRow) {
	for i := range rows {
		for _, c := range rows[i].changes {
			if u, ok := w.undrained[c.is.id]; ok && u.n <= rows[i].n {
				delete(w.undrained, c.is.id)
			}
		}
	}
}
