package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
)

// Operation looks up one operation.
func (l *Ledger) Operation(id string) (Operation, bool, error) {
	return l.find(query{l.lookup.operation, id,
		func() (found []columns, sure bool) { return l.w.recallLocked(id) },
		func(found []columns) error { return l.w.known.checkID(id, found) }})
}

// Unresolved finds an unsafe operation with this digest that is executing, or
// indeterminate and not resolved.
func (l *Ledger) Unresolved(digest []byte) (Operation, bool, error) {
	return l.find(query{l.lookup.unresolved, digest,
		func() (found []columns, sure bool) { return l.w.known.holding(digest), true },
		func(found []columns) error { return l.w.known.checkEqual(digest, found) }})
}

// ByIdempotency finds the operation that has an idempotency key.
func (l *Ledger) ByIdempotency(idem []byte) (Operation, bool, error) {
	return l.find(query{l.lookup.keyHolder, idem,
		func() (found []columns, sure bool) { return l.w.recallKeyLocked(idem) },
		func(found []columns) error { return l.w.known.checkKey(idem, found) }})
}

// query is one question, to what this run knows and to the file.
type query struct {
	ask    *sql.Stmt
	key    any
	recall func() (found []columns, sure bool) // with the writer's lock
	agrees func(found []columns) error
}

// find answers from what this run knows whole, and else from the file, whose
// answer is compared. Once somebody else was seen to change the file, all of
// its answers are compared.
func (l *Ledger) find(q query) (Operation, bool, error) {
	if err := l.settled(); err != nil {
		return Operation{}, false, fmt.Errorf("looking up operation: %w", err)
	}
	l.w.look()
	found, err := l.w.answer(q)
	if err != nil {
		return Operation{}, false, fmt.Errorf("looking up operation: %w", err)
	}
	if len(found) == 0 {
		return Operation{}, false, nil
	}
	return found[0].operation(), true, nil
}

// settled reports an outcome that was told and could not be written, after
// another try: nobody who was told it may read 'executing' afterwards.
func (l *Ledger) settled() error {
	l.w.mu.Lock()
	waiting, closed := len(l.w.kept) > 0, l.w.closed
	l.w.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case waiting:
		return l.w.flush(context.Background())
	}
	return nil
}

func (w *writer) answer(q query) ([]columns, error) {
	tampered := w.tampered()
	if !tampered {
		w.mu.Lock()
		found, sure := q.recall()
		w.mu.Unlock()
		if sure {
			return found, nil
		}
		found, err := scanOperations(q.ask.Query(q.key))
		if err != nil {
			return nil, explain(err)
		}
		if q.agrees(found) == nil {
			return found, nil
		}
		// A transaction may have come between.
	}
	w.drain.mu.Lock() // none comes between now
	defer w.drain.mu.Unlock()
	drained := w.drain.upToLocked(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, sure := q.recall(); sure && (drained != nil || !tampered || w.hasUndrainedLocked(known)) {
		return known, nil
	}
	found, err := scanOperations(q.ask.Query(q.key))
	if err != nil {
		return nil, explain(err)
	}
	if err := q.agrees(found); err != nil {
		w.setDoubtLocked(err)
		return nil, err
	}
	return found, nil
}

func (w *writer) hasUndrainedLocked(known []columns) bool {
	for _, c := range known {
		if _, ok := w.undrained[c.id]; ok {
			return true
		}
	}
	return false
}

// recallLocked returns an operation that this run knows whole, or that there
// is none; of others it has a mark only.
func (w *writer) recallLocked(id string) (found []columns, sure bool) {
	if c, ok := w.known.open[id]; ok {
		return []columns{c}, true
	}
	if u, ok := w.undrained[id]; ok {
		return []columns{u.columns}, true
	}
	return nil, !w.known.has(id)
}

func (w *writer) recallKeyLocked(key []byte) (found []columns, sure bool) {
	if !w.known.hasKey(key) {
		return nil, true
	}
	for _, u := range w.undrained {
		if bytes.Equal(u.idem, key) {
			return []columns{u.columns}, true
		}
	}
	return nil, false
}

// operation is what a job finds under an id. An operation that can still
// change is as this run knows it: its outcome is recorded whatever became of
// the file.
func (b *batch) operation(id string) (columns, bool, error) {
	found, sure := b.w.recallLocked(id)
	return b.found(b.w.l.lookup.operation, id, found, sure, func(f []columns) error { return b.w.known.checkID(id, f) })
}

// keyHolder is the operation that has an idempotency key.
func (b *batch) keyHolder(key []byte) (columns, bool, error) {
	found, sure := b.w.recallKeyLocked(key)
	return b.found(b.w.l.lookup.keyHolder, key, found, sure, func(f []columns) error { return b.w.known.checkKey(key, f) })
}

// found asks the file where this run is not sure. That is an operation that
// has ended, so the caller is about to be refused.
func (b *batch) found(ask *sql.Stmt, key any, known []columns, sure bool, agrees func([]columns) error) (columns, bool, error) {
	if !sure {
		var err error
		if known, err = scanOperations(ask.Query(key)); err != nil {
			return columns{}, false, unavailable(err)
		}
		if err := agrees(known); err != nil {
			b.w.setDoubtLocked(err)
			if len(known) == 0 {
				return columns{}, false, err
			}
		}
	}
	if len(known) == 0 {
		return columns{}, false, nil
	}
	return known[0], true, nil
}
