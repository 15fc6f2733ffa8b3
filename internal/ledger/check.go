package ledger

import (
	"context"
	"errors"
	"fmt"
)

// CheckOperations checks, with the audit key, that the operations which this
// run found at its start are those that the last confirmed run left, but for
// what recovery changed since, that the last confirmed run knew no later vault
// than this one, and confirms this run. It has to succeed once before operations
// can be made. What it finds changed makes the ledger
// unhealthy, with an error that wraps ErrTampered; after any other error it
// may be called again.
func (l *Ledger) CheckOperations(ctx context.Context, o *Opener, vaultGeneration uint64) error {
	l.checking.Lock()
	defer l.checking.Unlock()
	err := l.w.doubted()
	if err == nil && l.checked.Load() {
		return nil
	}
	if !errors.Is(err, ErrTampered) {
		err = l.checkOperations(ctx, o, vaultGeneration)
	}
	l.w.setDoubt(err)
	if err != nil {
		return fmt.Errorf("checking operations: %w", err)
	}
	l.checked.Store(true)
	l.w.drain.ring() // what can be retired is, from now on
	l.scrubbing.Do(func() { l.w.beside.Go(l.scrubSlowly) })
	return nil
}

func (l *Ledger) checkOperations(ctx context.Context, o *Opener, vaultGeneration uint64) error {
	e := l.w.epoch
	if string(o.recipient) != string(e.recipient) {
		return unavailable(fmt.Errorf("the ledger belongs to another audit key"))
	}
	walk := walk{keys: keyring{opener: o, epoch: l.lookup.epoch}, table: l.foundTable, last: l.foundRows}
	walk.rows = func(ctx context.Context, last int64) ([]sealedRow, error) {
		return scanSealed(l.lookup.rowsBack.QueryContext(ctx, last, rowsAtOnce))
	}
	if err := walk.back(ctx); err != nil {
		if sqliteCode(err) != 0 || ctx.Err() != nil {
			return unavailable(err)
		}
		return fmt.Errorf("%w: %w", ErrTampered, err)
	}
	if vaultGeneration < walk.vault {
		return fmt.Errorf("%w: the vault is of generation %d, and row %d tells of generation %d: an older vault was put in its place",
			ErrTampered, vaultGeneration, walk.last, walk.vault)
	}
	// Only now: whoever reads the ledger later stops at this epoch.
	err := l.w.drain.around(nil, func(t *transaction) {
		t.exec(t.d.stmt.confirmEpoch, o.confirmation(e.id, e.enc, e.sealed), e.id, e.recipient)
	})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// walk goes over the rows backwards, from the operations as they lie in the
// file, to a row that tells for certain what they were after it.
//
// Anybody can seal rows under an epoch of his own making, since that takes the
// audit public key only. But a run that was never unlocked has no reason to
// change more than recovery does. So in an epoch without confirmation nothing
// else is taken, and each such change is undone, until there comes a row of a
// confirmed epoch, whose row key only its run had, or no row any more.
type walk struct {
	keys  keyring
	rows  func(ctx context.Context, last int64) ([]sealedRow, error) // some from last on, newest first
	last  int64                                                      // the newest row that was not walked over
	table tableHash                                                  // of the operations after it
	vault uint64                                                     // generation of the vault that the last row told
}

func (w *walk) back(ctx context.Context) error {
	for {
		list, err := w.rows(ctx, w.last)
		if err != nil {
			return err
		}
		for _, s := range list {
			if end, err := w.over(ctx, s); err != nil || end {
				return err
			}
		}
		if len(list) == 0 {
			break
		}
	}
	if none := (tableHash{}); w.table != none {
		return errors.New("there are operations that no row tells of")
	}
	return nil
}

// over compares the hash that a row left, and undoes the row unless it is one
// to end with.
func (w *walk) over(ctx context.Context, s sealedRow) (end bool, err error) {
	_, e, err := w.keys.open(ctx, s)
	if err != nil {
		return false, err
	}
	if sum := w.table.sum(); string(sum[:]) != string(e.Table) {
		return false, fmt.Errorf("the operations are not those that row %d left", s.n)
	}
	if w.keys.in.confirmed {
		w.vault = e.Vault
		return true, nil
	}
	for _, c := range e.Operations {
		was, is, err := undone(c, s.n)
		if err != nil {
			return false, fmt.Errorf("row %d of a run that was never unlocked changed operation %s: %w", s.n, is.id, err)
		}
		w.table.remove(is.encode())
		w.table.add(was.encode())
	}
	w.last = s.n - 1
	return false, nil
}
