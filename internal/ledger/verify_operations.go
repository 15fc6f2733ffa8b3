package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/yett-broker/yett/internal/action"
)

// storedOperation is an operation with what Verify compares it with.
type storedOperation struct {
	columns
	finished                       bool // it lies in the table of those that decide nothing
	hasIntent, hasLast, hasResolve bool
}

// selectStored reads from one of the two tables.
func selectStored(table string) string {
	return "SELECT " + operationColumns + "," +
		" EXISTS(SELECT 1 FROM rows WHERE n=o.intent), EXISTS(SELECT 1 FROM rows WHERE n=o.last_row), EXISTS(SELECT 1 FROM rows WHERE n=o.resolved)" +
		" FROM " + table + " o WHERE o.id>? ORDER BY o.id LIMIT ?"
}

func scanStoredOperations(rows *sql.Rows, err error) ([]storedOperation, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []storedOperation
	for rows.Next() {
		var o storedOperation
		if err := rows.Scan(append(o.destinations(), &o.hasIntent, &o.hasLast, &o.hasResolve)...); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, rows.Err()
}

// eachOperation calls fn for every operation, a few in memory at a time.
func (v *verifier) eachOperation(ctx context.Context, fn func(storedOperation) error) error {
	seen := map[string]bool{}
	if err := v.eachIn(ctx, "operations", seen, fn); err != nil {
		return err
	}
	if v.hasFinished {
		if err := v.eachIn(ctx, "finished", seen, fn); err != nil {
			return err
		}
	}
	return v.eachBeyond(seen, fn)
}

func (v *verifier) eachIn(ctx context.Context, table string, seen map[string]bool, fn func(storedOperation) error) error {
	next, err := v.tx.PrepareContext(ctx, selectStored(table))
	if err != nil {
		return err
	}
	defer next.Close()
	after := ""
	for {
		list, err := scanStoredOperations(next.QueryContext(ctx, after, rowsAtOnce))
		if err != nil || len(list) == 0 {
			return err
		}
		for _, o := range list {
			after = o.id
			o.finished = table == "finished"
			if is, ok := v.over[o.id]; ok {
				seen[o.id] = true
				o = v.storedOver(is, o.hasIntent, o.hasLast, o.hasResolve)
			}
			if err := fn(o); err != nil {
				return err
			}
		}
	}
}

func (v *verifier) checkOperations(ctx context.Context) error {
	total := int64(0)
	err := v.eachOperation(ctx, func(o storedOperation) error {
		total++
		if !o.finished {
			v.table.add(o.columns.encode())
		}
		v.checkOperation(o)
		return nil
	})
	if err == nil && v.hasFinished {
		err = v.checkTwice(ctx)
	}
	if err != nil || v.unopened || v.newest == total {
		return err
	}
	return v.eachOperation(ctx, func(o storedOperation) error { return v.nameUntold(ctx, o) })
}

// checkTwice finds operations that lie in both tables.
func (v *verifier) checkTwice(ctx context.Context) error {
	var twice int64
	err := v.tx.QueryRowContext(ctx, "SELECT count(*) FROM operations o JOIN finished f ON o.id=f.id").Scan(&twice)
	if twice > 0 {
		v.problem("%d operations are there twice", twice)
	}
	return err
}

// checkOperation finds states that the state machine cannot reach.
func (v *verifier) checkOperation(o storedOperation) {
	possible := false
	switch action.State(o.state) {
	case action.Queued:
		possible = o.intent == 0
	case action.Executing:
		possible = o.intent > 0 && o.lastRow == o.intent
	case action.Completed, action.Indeterminate:
		possible = o.intent > 0 && o.lastRow > o.intent
	case action.Denied:
		possible = o.intent == 0 || o.lastRow > o.intent
	}
	if !possible || (o.intent == 0) != (o.began == 0) || (o.resolved != 0 && o.state != string(action.Indeterminate)) {
		v.problem("operation %s is in an impossible state (%s, intent %d, last row %d, resolved %d)",
			o.id, o.state, o.intent, o.lastRow, o.resolved)
	}
	if o.finished && o.isOpen() {
		v.problem("operation %s is %s and lies among those that decide nothing", o.id, o.state)
	}
	if o.intent != 0 && !o.hasIntent {
		v.problem("operation %s: its intent, row %d, is missing", o.id, o.intent)
	}
	if !o.hasLast {
		v.problem("operation %s: its last row, %d, is missing", o.id, o.lastRow)
	}
	if o.resolved != 0 && !o.hasResolve {
		v.problem("operation %s: row %d, which resolved it, is missing", o.id, o.resolved)
	}
}

// newest is the last row that tells of an operation: that which resolves it
// need not be one of its own.
func (c *columns) newest() int64 { return max(c.lastRow, c.resolved) }

// toldAtOnce is how many operations are looked up by one statement.
const toldAtOnce = 64

// selectTold finds operations by their ids, wherever they lie.
func selectTold(finished bool) string {
	ids := " WHERE id IN (?1"
	for i := 2; i <= toldAtOnce; i++ {
		ids += fmt.Sprintf(",?%d", i)
	}
	ids += ")"
	if finished {
		return selectOperation + ids + " UNION ALL " + selectFinished + ids
	}
	return selectOperation + ids
}

// checkTold compares operations as rows left them with what the file has.
func (v *verifier) checkTold(ctx context.Context, rows []openedRow) error {
	var ids []any
	for i := range rows {
		for _, told := range rows[i].told {
			ids = append(ids, told.id)
		}
	}
	has := map[string]columns{}
	for part := range slices.Chunk(ids, toldAtOnce) {
		found, err := scanOperations(v.told.QueryContext(ctx, append(part, make([]any, toldAtOnce-len(part))...)...))
		if err != nil {
			return err
		}
		for _, c := range found {
			if _, twice := has[c.id]; !twice { // checkTwice tells of it
				has[c.id] = c
			}
		}
	}
	for i := range rows {
		for _, told := range rows[i].told {
			is, ok := v.over[told.id]
			if !ok {
				is, ok = has[told.id]
			}
			v.compareTold(rows[i].n, &told, &is, ok)
		}
	}
	return nil
}

func (v *verifier) compareTold(n int64, told, is *columns, exists bool) {
	switch {
	case !exists:
		v.problem("row %d tells of operation %s, which is missing", n, told.id)
	case n > is.newest():
		v.problem("row %d changed operation %s, which ends with row %d", n, told.id, is.newest())
	case n == is.newest():
		v.newest++
		if differ := is.differences(told); len(differ) > 0 {
			v.problem("operation %s is not as row %d left it: %s", told.id, n, strings.Join(differ, "; "))
		}
	}
}

// nameUntold reports an operation whose last row does not tell of it.
func (v *verifier) nameUntold(ctx context.Context, o storedOperation) error {
	s := sealedRow{n: o.newest()}
	var err error
	if i := s.n - v.head - 1; i >= 0 && i < int64(len(v.beyond)) {
		s = v.beyond[i].sealedRow
	} else {
		err = v.tx.QueryRowContext(ctx, "SELECT epoch, sealed FROM rows WHERE n=?", s.n).Scan(&s.epoch, &s.sealed)
	}
	if err == sql.ErrNoRows {
		return nil // reported already
	} else if err != nil {
		return err
	}
	_, e, err := v.keys.open(ctx, s)
	if err != nil {
		return nil // reported already
	}
	for _, c := range e.Operations {
		if told, err := parseColumns(c.Is); err == nil && told.id == o.id {
			return nil
		}
	}
	v.problem("operation %s was added or changed: row %d, its last, does not tell of it", o.id, s.n)
	return nil
}

// checkRuns makes the check by which a broker refuses to act.
func (v *verifier) checkRuns(ctx context.Context) error {
	if v.keys.opener == nil {
		return nil
	}
	back, err := v.tx.PrepareContext(ctx, selectRowsBack)
	if err != nil {
		return err
	}
	defer back.Close()
	w := walk{keys: v.keys, table: v.table, last: v.head + int64(len(v.beyond))}
	w.rows = func(ctx context.Context, last int64) ([]sealedRow, error) {
		if i := last - v.head; i > 0 {
			return []sealedRow{v.beyond[i-1].sealedRow}, nil
		}
		return scanSealed(back.QueryContext(ctx, last, rowsAtOnce))
	}
	if err := w.back(ctx); err != nil {
		if sqliteCode(err) != 0 || ctx.Err() != nil {
			return err
		}
		v.problem("%v", err)
	}
	return nil
}
