package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// CheckOperations checks, with the audit key, that the operations which this
// run found at its start are those that the last confirmed run left, but for
// what recovery changed since, and confirms this run. It has to succeed once
// before operations can be made. What it finds changed makes the ledger
// unhealthy, with an error that wraps ErrTampered; after any other error it
// may be called again.
func (l *Ledger) CheckOperations(ctx context.Context, o *Opener) error {
	l.checking.Lock()
	defer l.checking.Unlock()
	err := l.w.doubted()
	if err == nil && l.checked.Load() {
		return nil
	}
	if !errors.Is(err, ErrTampered) {
		err = l.checkOperations(ctx, o)
	}
	l.w.setDoubt(err)
	if err != nil {
		return fmt.Errorf("checking operations: %w", err)
	}
	l.checked.Store(true)
	return nil
}

func (l *Ledger) checkOperations(ctx context.Context, o *Opener) error {
	e := l.w.epoch
	if string(o.recipient) != string(e.recipient) {
		return unavailable(fmt.Errorf("the ledger belongs to another audit key"))
	}
	walk := walk{keys: keyring{opener: o, epoch: l.lookup.epoch}, rows: l.lookup.rowsBack,
		table: l.foundTable, last: l.foundRows}
	if err := walk.back(ctx, e.id-1); err != nil {
		if sqliteCode(err) != 0 || ctx.Err() != nil {
			return unavailable(err)
		}
		return fmt.Errorf("%w: %w", ErrTampered, err)
	}
	// Only now: whoever reads the ledger later stops at this epoch.
	return l.w.do(ctx, func(b *batch) error {
		b.exec(b.w.stmt.confirmEpoch, o.confirmation(e.id, e.enc, e.sealed), e.id, e.recipient)
		return nil
	})
}

// walk follows the hash of all operations backwards. Each row carries the
// hash after it, and each epoch the one that its run began with.
//
// Anybody can seal a row under an epoch of his own making, since that takes
// the audit public key only. But no run that was never unlocked has a reason
// to change more than recovery does; so in an epoch without confirmation
// nothing else is taken, and each such change is undone, until the hash is
// that of a confirmed epoch, whose row key only its run had.
type walk struct {
	keys  keyring
	rows  *sql.Stmt // newest first
	table tableHash
	last  int64 // the newest row that was not walked over
	ahead []sealedRow
}

// back walks from the end of an epoch to the end of a confirmed one, or to the
// beginning of the ledger.
func (w *walk) back(ctx context.Context, epoch int64) error {
	for ; epoch > 0; epoch-- {
		in, err := w.keys.at(ctx, epoch)
		if err != nil {
			return err
		}
		for {
			s, ok, err := w.row(ctx)
			if err != nil {
				return err
			}
			if !ok || s.epoch < epoch {
				break
			}
			if s.epoch > epoch {
				return fmt.Errorf("row %d of run %d lies before rows of run %d", s.n, s.epoch, epoch)
			}
			if err := w.over(ctx, s, in.confirmed); err != nil || in.confirmed {
				return err
			}
		}
		if w.table.sum() != in.found {
			return fmt.Errorf("the operations at the end of run %d are not those of its beginning and its rows", epoch)
		}
		if in.confirmed {
			return nil
		}
	}
	var none tableHash
	if s, ok, err := w.row(ctx); err != nil {
		return err
	} else if ok {
		return fmt.Errorf("row %d is of no run", s.n)
	}
	if w.table != none {
		return fmt.Errorf("there are operations before the first row")
	}
	return nil
}

// over compares the hash that the newest row left, and undoes the row unless
// the walk ends here.
func (w *walk) over(ctx context.Context, s sealedRow, end bool) error {
	_, e, err := w.keys.open(ctx, s)
	if err != nil {
		return err
	}
	if sum := w.table.sum(); string(sum[:]) != string(e.Table) {
		return fmt.Errorf("the operations are not those that row %d left", s.n)
	}
	if end {
		return nil
	}
	for _, c := range e.Operations {
		was, is, err := undone(c, s.n)
		if err != nil {
			return fmt.Errorf("row %d of a run that was never unlocked changed operation %s: %w", s.n, is.id, err)
		}
		w.table.remove(&is)
		w.table.add(&was)
	}
	w.last, w.ahead = s.n-1, w.ahead[1:]
	return nil
}

// row is the newest row that was not walked over.
func (w *walk) row(ctx context.Context) (sealedRow, bool, error) {
	if len(w.ahead) == 0 {
		var err error
		if w.ahead, err = scanSealed(w.rows.QueryContext(ctx, w.last, rowsAtOnce)); err != nil || len(w.ahead) == 0 {
			return sealedRow{}, false, err
		}
	}
	return w.ahead[0], true, nil
}
