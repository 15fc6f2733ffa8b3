package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

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
	vault      atomic.Uint64 // generation of the vault's file, which rows tell
	commits    atomic.Int64
}

// undrained is an operation as row n left it.
type undrained struct {
	columns
	n int64
}

func newWriter(l *Ledger, to *recipient) (*writer, error) {
	w := &writer{l: l, gathering: newGroup(), undrained: map[string]undrained{}}
	w.idle.L = &w.mu
	w.soon = time.AfterFunc(time.Hour, w.overdue)
	d := &w.drain
	d.w, d.kick, d.quit, d.done = w, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	// a lock of another program is awaited for busyMillis; what somebody changed takes its time to mend
	ctx, cancel := context.WithTimeout(context.Background(), migrationTime)
	defer cancel()
	var err error
	if d.conn, err = l.writeDB.Conn(ctx); err != nil {
		return nil, explain(err)
	}
	if err = w.start(ctx, to); err != nil {
		return nil, errors.Join(explain(err), w.close(), w.watch.close())
	}
	return w, nil
}

// start reads what earlier runs left, once the journal is in the database.
func (w *writer) start(ctx context.Context, to *recipient) error {
	d := &w.drain
	if err := d.stmt.prepare(ctx, d.conn); err != nil {
		return err
	}
	lastRow, err := w.startTree(ctx) // the journal's rows come on top
	if err == nil {
		w.found, err = w.takeJournal(ctx)
	}
	if err == nil {
		lastRow, _, err = d.ends(ctx)
	}
	if err != nil {
		return err
	}
	var lastEpoch int64
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
	return w.watch.open(w.l.place.database())
}

// startTree reads where the tree of the rows goes on, and returns the newest row.
// Nodes that somebody changed are computed anew.
func (w *writer) startTree(ctx context.Context) (last int64, err error) {
	d := &w.drain
	last, first, err := d.ends(ctx)
	if err == nil && first < 1 {
		err = fmt.Errorf("%w: a row has number %d", errNodes, first)
	}
	if err == nil {
		d.tree, err = readTree(ctx, d.conn, last)
	}
	if !errors.Is(err, errNodes) {
		return last, err
	}
	w.setDoubt(fmt.Errorf("%w: %w", ErrTampered, err))
	if err := w.renumber(); err != nil {
		return 0, err
	}
	if last, _, err = d.ends(ctx); err == nil {
		d.tree, err = readTree(ctx, d.conn, last)
	}
	return last, err
}

// ends are the numbers of the newest row and of the first, 0 and 1 if there is none.
func (d *drain) ends(ctx context.Context) (last, first int64, err error) {
	err = d.conn.QueryRowContext(ctx, "SELECT coalesce((SELECT max(n) FROM rows), 0), coalesce((SELECT min(n) FROM rows), 1)").Scan(&last, &first)
	return last, first, err
}

// close lets go of everything but the watch; the drain does not run any more.
func (w *writer) close() error {
	return errors.Join(w.journal.close(), w.drain.stmt.close(), w.drain.conn.Close())
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
