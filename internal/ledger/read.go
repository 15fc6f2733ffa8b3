package ledger

import (
	"context"
	"crypto/cipher"
	"database/sql"
	"errors"
	"fmt"

	"github.com/yett-broker/yett/internal/action"
)

const (
	operationColumns = "id, state, code, session, caller, digest, idem, unsafe, intent, last_row, resolved, budget_key, at"
	selectOperation  = "SELECT " + operationColumns + " FROM operations "
	// selectUnresolved finds what an equal unsafe operation has to wait for.
	selectUnresolved = selectOperation + "WHERE digest=? AND unsafe=1 AND state IN ('executing','indeterminate') AND resolved=0 AND " + isOpen + " ORDER BY at"
)

// lookups are prepared on the reading connections.
type lookups struct {
	operation, unresolved, keyHolder, rows, epoch *sql.Stmt
}

func (s *lookups) prepare(db *sql.DB) error {
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.operation, selectOperation + "WHERE id=?"},
		{&s.unresolved, selectUnresolved},
		{&s.keyHolder, selectOperation + "WHERE idem=? AND idem IS NOT NULL"},
		{&s.rows, "SELECT n, epoch, sealed FROM rows WHERE n>=? ORDER BY n LIMIT ?"},
		{&s.epoch, selectEpoch},
	} {
		var err error
		if *p.stmt, err = db.Prepare(p.text); err != nil {
			return explain(err)
		}
	}
	return nil
}

// Operation looks up one operation.
func (l *Ledger) Operation(id string) (Operation, bool, error) {
	return l.find(l.lookup.operation, id)
}

// Unresolved finds an unsafe operation with this digest that is executing, or
// indeterminate and not resolved.
func (l *Ledger) Unresolved(digest []byte) (Operation, bool, error) {
	return l.find(l.lookup.unresolved, digest)
}

// ByIdempotency finds the operation that has an idempotency key.
func (l *Ledger) ByIdempotency(idem []byte) (Operation, bool, error) {
	return l.find(l.lookup.keyHolder, idem)
}

func (l *Ledger) find(s *sql.Stmt, key any) (Operation, bool, error) {
	if err := l.settled(); err != nil {
		return Operation{}, false, fmt.Errorf("looking up operation: %w", err)
	}
	op, ok, err := one(s.Query(key))
	if err != nil {
		return Operation{}, false, fmt.Errorf("looking up operation: %w", explain(err))
	}
	return op, ok, nil
}

// settled brings handed-over outcomes to disk before a lookup, so that nobody
// who was told an outcome reads 'executing' afterwards.
func (l *Ledger) settled() error {
	if l.w.outcomes.Load() == 0 {
		return nil
	}
	return l.w.do(context.Background(), func(*batch) error { return nil })
}

func one(rows *sql.Rows, err error) (Operation, bool, error) {
	ops, err := scanOperations(rows, err)
	if len(ops) == 0 {
		return Operation{}, false, err
	}
	return ops[0], true, err
}

func scanOperations(rows *sql.Rows, err error) ([]Operation, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ops []Operation
	for rows.Next() {
		var op Operation
		var state string
		var at int64
		if err := rows.Scan(&op.ID, &state, &op.Code, &op.Session, &op.Caller, &op.Digest, &op.Idempotency,
			&op.Unsafe, &op.Intent, &op.LastRow, &op.Resolved, &op.BudgetKey, &at); err != nil {
			return nil, err
		}
		op.State, op.CreatedAt = action.State(state), fromNanos(at)
		ops = append(ops, op)
	}
	return ops, rows.Err()
}

// rowsAtOnce bounds a read transaction: a slow reader must not keep the
// write-ahead log from being folded, nor many big rows fill the memory.
const rowsAtOnce = 64

// Rows calls fn for each row from number from on, oldest first, until fn
// fails or the rows that were there at the call are done.
func (l *Ledger) Rows(ctx context.Context, o *Opener, from int64, fn func(Row) error) error {
	if err := l.w.do(ctx, func(*batch) error { return nil }); err != nil { // what was handed over comes first
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
	rows, err := l.lookup.rows.QueryContext(ctx, from, rowsAtOnce)
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

const selectEpoch = "SELECT enc, sealed FROM epochs WHERE id=? AND recipient=?"

// keyring opens rows; it remembers the key of the epoch that it is in.
type keyring struct {
	opener *Opener
	epoch  *sql.Stmt
	id     int64
	key    cipher.AEAD
	err    error
}

func (k *keyring) open(ctx context.Context, s sealedRow) (Row, action.State, error) {
	if k.id != s.epoch {
		k.id = s.epoch
		k.key, k.err = k.load(ctx, s.epoch)
	}
	if k.err != nil {
		return Row{}, "", k.err
	}
	plain, err := openRow(k.key, s.n, s.epoch, s.sealed)
	if err != nil {
		return Row{}, "", err
	}
	return decode(s.n, plain)
}

func (k *keyring) load(ctx context.Context, id int64) (cipher.AEAD, error) {
	if k.opener == nil {
		return nil, errors.New("rows open only with the audit key")
	}
	var enc, sealed []byte
	err := k.epoch.QueryRowContext(ctx, id, k.opener.recipient).Scan(&enc, &sealed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("epoch %d has no key for this audit key", id)
	}
	if err != nil {
		return nil, err
	}
	return k.opener.epoch(id, enc, sealed)
}
