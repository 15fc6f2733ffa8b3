package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	// retireAbove is how many operations that decide nothing any more stay in
	// the table operations: a start reads and a check covers no more of them.
	retireAbove = 1024
	// retireAtOnce bounds what one row retires, and so how long the writer's
	// lock is held for it.
	retireAtOnce = 256
	// longestBudget is the longest window that a budget may have. An intent
	// counts as long; after the clock was set back, as the strict side, longer.
	longestBudget = 24 * time.Hour
)

// timed is an operation that decides nothing any more once its intent is older
// than every budget.
type timed struct {
	id    string
	began int64
}

// decides: the operation decides something for as long as this boot lasts. An
// idempotency key does as long as the process that it is of may live.
func (k *known) decides(c *columns) bool {
	return c.isOpen() || len(c.idem) > 0 && (k.boot == "" || strings.HasPrefix(c.caller, k.boot+":"))
}

// noteEnded keeps the id of an operation that decides nothing any more, or
// will not.
func (k *known) noteEnded(c *columns) {
	switch {
	case k.decides(c):
	case counts(c):
		k.counting = append(k.counting, timed{c.id, c.began})
	default:
		k.ended = append(k.ended, c.id)
	}
}

// dueLocked takes ids to retire off the list, none if there are few.
func (k *known) dueLocked(now time.Time) []string {
	past := now.Add(-longestBudget).UnixNano()
	for len(k.counting) > 0 && k.counting[0].began <= past {
		k.ended = append(k.ended, k.counting[0].id)
		k.counting = k.counting[1:]
	}
	if len(k.ended) < retireAbove+retireAtOnce {
		return nil
	}
	due := k.ended[:retireAtOnce:retireAtOnce]
	k.ended = k.ended[retireAtOnce:]
	return due
}

// retire moves operations that decide nothing any more from the table
// operations to the table finished, where a lookup finds them by the row that
// tells of them, and Verify by its own. It follows the drain. A row tells how
// many; without a check of the earlier runs nothing is moved.
func (w *writer) retire() {
	for w.retireSome() {
		select {
		case <-w.drain.quit:
			return
		default:
		}
	}
}

func (w *writer) retireSome() bool {
	if !w.l.checked.Load() || w.healthy() != nil {
		return false
	}
	w.mu.Lock()
	due := w.known.dueLocked(w.l.now())
	w.mu.Unlock()
	if len(due) == 0 {
		return false
	}
	found, err := w.readDue(due)
	if err != nil {
		return false // they stay where they are until the next start
	}
	outcome, _ := json.Marshal(map[string]int{"operations": len(found)})
	plain := w.l.encodeAnyway(Row{Kind: "operations_retired", Outcome: outcome})
	err = w.do(context.Background(), func(b *batch) error {
		var changes []transition
		for i := range found {
			c := &found[i]
			if w.known.checkID(c.id, found[i:i+1]) != nil || c.isOpen() {
				continue // it changed meanwhile, or the file did: a lookup tells which
			}
			changes = append(changes, transition{was: c, is: c, retired: true})
		}
		b.append(plain, changes...)
		return nil
	})
	return err == nil
}

// readDue reads operations from the file.
func (w *writer) readDue(ids []string) ([]columns, error) {
	ctx, cancel := context.WithTimeout(context.Background(), busyMillis*time.Millisecond)
	defer cancel()
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return scanOperations(w.l.readDB.QueryContext(ctx, selectOperation+"WHERE id IN (?"+strings.Repeat(",?", len(ids)-1)+")", args...))
}

// Past looks up an operation that ended long ago. The file's word for it is
// not taken: the row that ended it has to tell the same.
func (l *Ledger) Past(ctx context.Context, o *Opener, id string) (Operation, bool, error) {
	found, err := scanOperations(l.lookup.finished.QueryContext(ctx, id))
	if err == nil && len(found) > 0 {
		err = l.confirm(ctx, o, &found[0])
	}
	switch {
	case err != nil:
		return Operation{}, false, fmt.Errorf("looking up operation: %w", explain(err))
	case len(found) == 0:
		return Operation{}, false, nil
	}
	return found[0].operation(), true, nil
}

// confirm compares an operation with what its newest row tells of it.
func (l *Ledger) confirm(ctx context.Context, o *Opener, c *columns) error {
	changed := fmt.Errorf("%w: operation %s is not as row %d left it", ErrTampered, c.id, c.newest())
	list, err := l.sealedRows(ctx, c.newest())
	if err != nil {
		return err
	}
	if len(list) == 0 || list[0].n != c.newest() || c.isOpen() {
		return changed
	}
	keys := keyring{opener: o, epoch: l.lookup.epoch}
	_, e, err := keys.open(ctx, list[0])
	if err != nil {
		return fmt.Errorf("%w: %w", changed, err)
	}
	for _, told := range e.Operations {
		if string(told.Is) == string(c.encode()) {
			return nil
		}
	}
	return changed
}
