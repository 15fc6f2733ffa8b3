package ledger

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"database/sql"
	"errors"
	"fmt"
)

const (
	selectOperation = "SELECT " + operationColumns + " FROM operations "
	selectFinished  = "SELECT " + operationColumns + " FROM finished "
	selectKeyHolder = selectOperation + "WHERE idem=? AND idem IS NOT NULL"
	// selectUnresolved finds what an equal unsafe operation has to wait for.
	selectUnresolved = selectOperation + "WHERE digest=? AND unsafe=1 AND state IN ('executing','indeterminate') AND resolved=0 AND " + isOpen + " ORDER BY at"
)

// lookups are prepared on the reading connections.
type lookups struct {
	operation, unresolved, keyHolder *sql.Stmt
	finished                         *sql.Stmt
	rows, rowsBack, epoch            *sql.Stmt
}

func (s *lookups) prepare(db *sql.DB) error {
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.operation, selectOperation + "WHERE id=?"},
		{&s.finished, selectFinished + "WHERE id=?"},
		{&s.unresolved, selectUnresolved},
		{&s.keyHolder, selectKeyHolder},
		{&s.rows, "SELECT n, epoch, sealed FROM rows WHERE n>=? ORDER BY n LIMIT ?"},
		{&s.rowsBack, selectRowsBack},
		{&s.epoch, selectEpoch},
	} {
		var err error
		if *p.stmt, err = db.Prepare(p.text); err != nil {
			return explain(err)
		}
	}
	return nil
}

// rowsAtOnce bounds a read transaction: a slow reader must not keep the
// write-ahead log from being folded, nor many big rows fill the memory.
const rowsAtOnce = 64

// Rows calls fn for each row from number from on, oldest first, until fn
// fails or the rows that were there at the call are done.
func (l *Ledger) Rows(ctx context.Context, o *Opener, from int64, fn func(Row) error) error {
	// What was handed over comes first. Where nothing can be written the rows
	// that there are can be read all the same.
	if err := l.w.flush(ctx); errors.Is(err, errClosed) || ctx.Err() != nil {
		return fmt.Errorf("reading rows: %w", err)
	}
	last := l.entries.Load()
	keys := keyring{opener: o, epoch: l.lookup.epoch}
	for from <= last {
		sealed, err := l.sealedRows(ctx, from)
		if err != nil {
			return fmt.Errorf("reading rows: %w", explain(err))
		}
		if len(sealed) == 0 {
			return fmt.Errorf("reading rows: row %d is missing", from)
		}
		for _, s := range sealed {
			if s.n > last {
				return nil
			}
			r, _, err := keys.open(ctx, s)
			if err != nil {
				return fmt.Errorf("reading rows: %w", err)
			}
			if err := fn(r); err != nil {
				return err
			}
			from = s.n + 1
		}
	}
	return nil
}

// sealedRow is a row as it lies in the file.
type sealedRow struct {
	n, epoch int64
	sealed   []byte
}

func (l *Ledger) sealedRows(ctx context.Context, from int64) ([]sealedRow, error) {
	if list := l.w.pendingRows(from); len(list) > 0 {
		return list, nil
	}
	return scanSealed(l.lookup.rows.QueryContext(ctx, from, rowsAtOnce))
}

// pendingRows are rows from number from on, if the database does not have it.
func (w *writer) pendingRows(from int64) []sealedRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 || from < w.pending[0].n {
		return nil
	}
	var list []sealedRow
	for i := from - w.pending[0].n; i < int64(len(w.pending)) && len(list) < rowsAtOnce; i++ {
		list = append(list, w.pending[i].sealedRow)
	}
	return list
}

func scanSealed(rows *sql.Rows, err error) ([]sealedRow, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []sealedRow
	for rows.Next() {
		var s sealedRow
		if err := rows.Scan(&s.n, &s.epoch, &s.sealed); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// leafRow is a row with its hash.
type leafRow struct {
	sealedRow
	leaf []byte
}

func scanLeaves(rows *sql.Rows, err error) ([]leafRow, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []leafRow
	for rows.Next() {
		var r leafRow
		if err := rows.Scan(&r.n, &r.epoch, &r.sealed, &r.leaf); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

const (
	selectEpoch    = "SELECT enc, sealed, confirmed FROM epochs WHERE id=? AND recipient=?"
	selectRowsBack = "SELECT n, epoch, sealed FROM rows WHERE n<=? ORDER BY n DESC LIMIT ?"
)

// keyring opens rows; it remembers the epoch that it is in.
type keyring struct {
	opener *Opener
	epoch  *sql.Stmt
	id     int64
	in     keyedEpoch
	err    error
}

// keyedEpoch is a row key with what the vault said of it.
type keyedEpoch struct {
	rows      cipher.AEAD
	confirmed bool // it is of a run whose operations were checked with the audit key
}

func (k *keyring) open(ctx context.Context, s sealedRow) (Row, effect, error) {
	in, err := k.at(ctx, s.epoch)
	if err != nil {
		return Row{}, effect{}, err
	}
	plain, err := openRow(in.rows, s.n, s.epoch, s.sealed)
	if err != nil {
		return Row{}, effect{}, err
	}
	return decode(s.n, plain)
}

func (k *keyring) at(ctx context.Context, id int64) (keyedEpoch, error) {
	if k.id != id {
		k.id = id
		k.in, k.err = k.load(ctx, id)
	}
	return k.in, k.err
}

func (k *keyring) load(ctx context.Context, id int64) (keyedEpoch, error) {
	if k.opener == nil {
		return keyedEpoch{}, errors.New("rows open only with the audit key")
	}
	var enc, sealed, confirmed []byte
	err := k.epoch.QueryRowContext(ctx, id, k.opener.recipient).Scan(&enc, &sealed, &confirmed)
	if errors.Is(err, sql.ErrNoRows) {
		return keyedEpoch{}, fmt.Errorf("epoch %d has no key for this audit key", id)
	}
	if err != nil {
		return keyedEpoch{}, err
	}
	rows, err := k.opener.epoch(id, enc, sealed)
	if err != nil {
		return keyedEpoch{}, err
	}
	if len(confirmed) > 0 && !hmac.Equal(confirmed, k.opener.confirmation(id, enc, sealed)) {
		return keyedEpoch{}, fmt.Errorf("epoch %d: its confirmation is false", id)
	}
	return keyedEpoch{rows, len(confirmed) > 0}, nil
}
