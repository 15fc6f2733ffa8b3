package ledger

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotQuarantined is returned by Acknowledge where nothing is wrong.
var ErrNotQuarantined = errors.New("nothing was found changed")

// Quarantined is nil, or why the ledger takes no new actions: somebody else
// changed it, which wraps ErrTampered.
func (l *Ledger) Quarantined() error {
	if err := l.w.doubted(); errors.Is(err, ErrTampered) {
		return err
	}
	return nil
}

// Acknowledge writes the row in which a person states what was found, and ends
// the quarantine. What decides from now on is what the rows tell that open and
// that a confirmed run, this run, or recovery wrote: an operation that was
// taken out of its table, or changed in it, comes back as it was, and one that
// no row tells of goes. Rows that are missing or do not open stay so, and
// Verify goes on telling of them where it opens rows; the tree becomes that of
// the rows as they lie, so that later starts find nothing new.
//
// The row and the operations are one transaction: a crash before its commit
// leaves the quarantine. The caller signs a new head afterwards; until then a
// later start finds the old one and the quarantine again.
func (l *Ledger) Acknowledge(ctx context.Context, o *Opener, r Row) (n int64, err error) {
	plain, err := l.encode(r)
	if err != nil {
		return 0, err
	}
	l.checking.Lock()
	defer l.checking.Unlock()
	l.w.look()
	if l.Quarantined() == nil {
		return 0, ErrNotQuarantined
	}
	if n, err = l.acknowledge(ctx, o, plain); err != nil {
		return 0, fmt.Errorf("acknowledging: %w", err)
	}
	l.checked.Store(true)
	l.heads.forget()
	l.w.drain.ring()
	return n, nil
}

func (h *heads) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.head = nil
}

func (l *Ledger) acknowledge(ctx context.Context, o *Opener, plain []byte) (n int64, err error) {
	w := l.w
	told := &told{w: w, keys: keyring{opener: o, epoch: l.lookup.epoch}, next: 1, ops: map[string]columns{}}
	if err := told.readAll(ctx); err != nil { // returns with the writer's lock, and nobody writing
		return 0, err
	}
	fresh := newKnown(w.known.boot)
	for id := range told.ops {
		c := told.ops[id]
		fresh.replace(nil, &c, c.encode())
	}
	w.known.exchange(fresh)
	_ = w.runLocked(&job{run: func(b *batch) error { n = b.append(plain); return nil }}) // it refuses nothing
	g := w.gathering
	w.gathering, w.leading = newGroup(), true
	w.mu.Unlock()
	err = w.drain.around(g.rows, func(t *transaction) {
		told.write(t, o)
		t.rowsAsTheyAre(ctx)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = false
	defer w.idle.Broadcast()
	defer close(g.done)
	if err != nil {
		w.failLocked(g, unavailable(err)) // takes back what came on top
		w.known.exchange(fresh)
		return 0, unavailable(err)
	}
	w.doubt = nil
	w.publishLocked(g)
	return n, nil
}

// told are the operations that rows tell of and that this run has to know.
type told struct {
	w    *writer
	keys keyring
	next int64 // the row to read
	ops  map[string]columns
}

// readAll reads all rows. It returns with the writer's lock at a moment when
// every row is durable and read, so that none comes between.
func (t *told) readAll(ctx context.Context) error {
	w := t.w
	for {
		if err := w.flush(ctx); err != nil {
			return err
		}
		if err := w.drain.upTo(0); err != nil {
			return err
		}
		if err := t.read(ctx, w.drain.through.Load()); err != nil {
			return err
		}
		w.mu.Lock()
		for w.leading {
			w.idle.Wait()
		}
		if w.closed {
			w.mu.Unlock()
			return errClosed
		}
		if len(w.gathering.rows) == 0 && len(w.kept) == 0 && w.next == t.next {
			return nil
		}
		w.mu.Unlock()
	}
}

// read goes over the rows of the database up to last; gaps and rows that do
// not open tell nothing.
func (t *told) read(ctx context.Context, last int64) error {
	for t.next <= last {
		list, err := scanSealed(t.w.l.lookup.rows.QueryContext(ctx, t.next, rowsAtOnce))
		if err != nil {
			return unavailable(err)
		}
		if len(list) == 0 {
			break
		}
		for _, s := range list {
			if s.n > last {
				break
			}
			t.row(ctx, s)
		}
		t.next = list[len(list)-1].n + 1
	}
	t.next = last + 1
	return nil
}

func (t *told) row(ctx context.Context, s sealedRow) {
	e, trusted, err := t.open(ctx, s)
	if err != nil {
		return
	}
	for _, c := range e.Operations {
		is, err := parseColumns(c.Is)
		if err != nil {
			continue
		}
		if !trusted { // by then only recovery changes anything
			was, _, err := undone(c, s.n)
			now, there := t.ops[is.id]
			if err != nil || !there || string(now.encode()) != string(was.encode()) {
				continue
			}
		}
		t.ops[is.id] = is
		if t.w.retirable(&is) && !t.w.knows(is.id) {
			delete(t.ops, is.id) // it lies in the table finished
		}
	}
}

// open opens a row, those of this run with the key that it has itself.
func (t *told) open(ctx context.Context, s sealedRow) (e effect, trusted bool, err error) {
	own := t.w.epoch
	if s.epoch != own.id {
		_, e, err = t.keys.open(ctx, s)
		return e, t.keys.in.confirmed, err
	}
	plain, err := openRow(own.rows, s.n, s.epoch, s.sealed)
	if err == nil {
		_, e, err = decode(s.n, plain)
	}
	return e, true, err
}

func (w *writer) retirable(c *columns) bool {
	return !w.known.decides(c) && (!counts(c) || c.began <= w.l.now().Add(-longestBudget).UnixNano())
}

func (w *writer) knows(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known.has(id)
}

// write makes the table operations what the rows tell.
func (t *told) write(tx *transaction, o *Opener) {
	s, e := &tx.d.stmt, t.w.epoch
	tx.exec(s.clearOps)
	for id := range t.ops {
		c := t.ops[id]
		tx.exec(s.putOp, c.args()...)
	}
	tx.exec(s.clearTwice)
	tx.exec(s.noProblem)
	tx.exec(s.putEpoch, e.id, e.recipient, e.enc, e.sealed, o.confirmation(e.id, e.enc, e.sealed))
}
