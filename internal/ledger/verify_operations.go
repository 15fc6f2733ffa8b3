package ledger

import (
	"context"
	"database/sql"

	"github.com/yett-broker/yett/internal/action"
)

// storedOperation is an operation with what Verify compares it with.
type storedOperation struct {
	Operation
	began                          int64
	hasIntent, hasLast, hasResolve bool
}

const selectStored = "SELECT o.id, o.state, o.intent, o.last_row, o.resolved, o.began, o.digest," +
	" EXISTS(SELECT 1 FROM rows WHERE n=o.intent), EXISTS(SELECT 1 FROM rows WHERE n=o.last_row), EXISTS(SELECT 1 FROM rows WHERE n=o.resolved)" +
	" FROM operations o WHERE o.id>? ORDER BY o.id LIMIT ?"

func scanStoredOperations(rows *sql.Rows, err error) ([]storedOperation, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []storedOperation
	for rows.Next() {
		var o storedOperation
		var state string
		if err := rows.Scan(&o.ID, &state, &o.Intent, &o.LastRow, &o.Resolved, &o.began, &o.Digest,
			&o.hasIntent, &o.hasLast, &o.hasResolve); err != nil {
			return nil, err
		}
		o.State = action.State(state)
		list = append(list, o)
	}
	return list, rows.Err()
}

func (v *verifier) checkOperations(ctx context.Context) error {
	next, err := v.tx.PrepareContext(ctx, selectStored)
	if err != nil {
		return err
	}
	var total, intents int64
	after := ""
	for {
		list, err := scanStoredOperations(next.QueryContext(ctx, after, rowsAtOnce))
		if err != nil {
			return err
		}
		for _, o := range list {
			after = o.ID
			total++
			if o.Intent != 0 {
				intents++
			}
			v.checkOperation(o)
			if err := v.checkRepeated(ctx, o.Operation); err != nil {
				return err
			}
		}
		if len(list) == 0 {
			break
		}
	}
	if !v.unopened && (v.lastTold != total || v.intentsTold != intents) {
		v.problem("%d of %d operations and %d of %d intents name rows that tell of something else",
			total-v.lastTold, total, intents-v.intentsTold, intents)
	}
	return nil
}

// checkOperation finds states that the state machine cannot reach.
func (v *verifier) checkOperation(o storedOperation) {
	possible := false
	switch o.State {
	case action.Queued:
		possible = o.Intent == 0
	case action.Executing:
		possible = o.Intent > 0 && o.LastRow == o.Intent
	case action.Completed, action.Indeterminate:
		possible = o.Intent > 0 && o.LastRow > o.Intent
	case action.Denied:
		possible = o.Intent == 0 || o.LastRow > o.Intent
	}
	if !possible || (o.Intent == 0) != (o.began == 0) || (o.Resolved != 0 && o.State != action.Indeterminate) {
		v.problem("operation %s is in an impossible state (%s, intent %d, last row %d, resolved %d)",
			o.ID, o.State, o.Intent, o.LastRow, o.Resolved)
	}
	if o.Intent != 0 && !o.hasIntent {
		v.problem("operation %s: its intent, row %d, is missing", o.ID, o.Intent)
	}
	if !o.hasLast {
		v.problem("operation %s: its last row, %d, is missing", o.ID, o.LastRow)
	}
	if o.Resolved != 0 && !o.hasResolve {
		v.problem("operation %s: row %d, which resolved it, is missing", o.ID, o.Resolved)
	}
}

// checkRepeated looks at an operation that a repetition resolved: the row has
// to be the intent of an equal operation.
func (v *verifier) checkRepeated(ctx context.Context, op Operation) error {
	if v.keys.opener == nil || op.Resolved == 0 || op.Resolved == op.LastRow {
		return nil
	}
	s := sealedRow{n: op.Resolved}
	err := v.tx.QueryRowContext(ctx, "SELECT epoch, sealed FROM rows WHERE n=?", s.n).Scan(&s.epoch, &s.sealed)
	if err == sql.ErrNoRows {
		return nil // reported already
	} else if err != nil {
		return err
	}
	r, state, err := v.keys.open(ctx, s)
	if err != nil {
		return nil // reported already
	}
	by, ok, err := one(v.operation.QueryContext(ctx, r.OperationID))
	if err != nil {
		return err
	}
	if !ok || state != action.Executing || string(by.Digest) != string(op.Digest) {
		v.problem("operation %s: row %d did not resolve it", op.ID, op.Resolved)
	}
	return nil
}
