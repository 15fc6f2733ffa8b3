package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/yett-broker/yett/internal/action"
)

// mark is half of a SHA-256 over a secret of this run and something else. No
// mark leaves the process, so nobody can look for a second text to one.
type mark [16]byte

// known is what this run knows of the operations without asking the file: it
// read them once, at the start, and follows its own changes. Each answer of
// the file that decides something is compared with it, so that it does not
// matter how somebody changed the file, nor whether rows are there at all.
//
// The writer alone changes it, inside a transaction; a rollback takes the
// changes back. It holds some 100 bytes for each operation; one that can decide
// nothing any more leaves it, as retire says.
type known struct {
	secret [32]byte
	boot   string // of this system; idempotency keys of another one are nobody's

	mu    sync.RWMutex
	marks map[mark]mark              // of each id: its columns
	keys  map[mark]struct{}          // idempotency keys in use
	open  map[string]columns         // operations that can still change, whole
	equal map[string]map[string]bool // by digest: ids of those that hold up equal ones
	begun map[string][]int64         // by budget key: when intents were made, ascending
	table tableHash

	ended    []string // operations that decide nothing any more, oldest first, and some that are gone
	counting []timed  // those that will not when no budget counts them any more
}

func newKnown(boot string) *known {
	k := &known{boot: boot, marks: map[mark]mark{}, keys: map[mark]struct{}{}, open: map[string]columns{},
		equal: map[string]map[string]bool{}, begun: map[string][]int64{}}
	rand.Read(k.secret[:])
	return k
}

// readKnown reads every operation that can decide something, and some more.
func readKnown(ctx context.Context, q querier, boot string) (*known, error) {
	k := newKnown(boot)
	rows, err := q.QueryContext(ctx, "SELECT "+operationColumns+" FROM operations")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c columns
		if err := rows.Scan(c.destinations()...); err != nil {
			return nil, err
		}
		k.replace(nil, &c, c.encode())
	}
	return k, rows.Err()
}

// exchange swaps what two of them know. The writer's lock is held, and other is
// nobody else's.
func (k *known) exchange(other *known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.secret, other.secret = other.secret, k.secret
	k.marks, other.marks = other.marks, k.marks
	k.keys, other.keys = other.keys, k.keys
	k.open, other.open = other.open, k.open
	k.equal, other.equal = other.equal, k.equal
	k.begun, other.begun = other.begun, k.begun
	k.table, other.table = other.table, k.table
	k.ended, other.ended = other.ended, k.ended
	k.counting, other.counting = other.counting, k.counting
}

func (k *known) mark(purpose byte, data []byte) (m mark) {
	text := make([]byte, 0, 512)
	sum := sha256.Sum256(append(append(append(text, k.secret[:]...), purpose), data...))
	copy(m[:], sum[:])
	return m
}

func (k *known) idMark(id string) mark       { return k.mark('i', []byte(id)) }
func (k *known) keyMark(key []byte) mark     { return k.mark('k', key) }
func (k *known) columnsMark(c *columns) mark { return k.formMark(c.encode()) }
func (k *known) formMark(form []byte) mark   { return k.mark('c', form) }

// replace puts an operation, with its canonical form, in the place of its
// former columns; either may be nil. Swapping the two takes the change back.
func (k *known) replace(was, is *columns, form []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if was != nil {
		k.table.remove(was.encode())
		if is == nil || is.id != was.id {
			delete(k.marks, k.idMark(was.id))
		}
		delete(k.open, was.id)
		if len(was.idem) > 0 {
			delete(k.keys, k.keyMark(was.idem))
		}
		if was.holdsUp() {
			delete(k.equal[string(was.digest)], was.id)
			if len(k.equal[string(was.digest)]) == 0 {
				delete(k.equal, string(was.digest))
			}
		}
		if times := k.begun[string(was.budgetKey)]; counts(was) {
			if i, ok := slices.BinarySearch(times, was.began); ok {
				k.begun[string(was.budgetKey)] = slices.Delete(times, i, i+1)
			}
		}
	}
	if is == nil {
		return
	}
	k.table.add(form)
	k.marks[k.idMark(is.id)] = k.formMark(form)
	if is.isOpen() {
		k.open[is.id] = *is
	}
	k.noteEnded(is)
	if len(is.idem) > 0 {
		k.keys[k.keyMark(is.idem)] = struct{}{}
	}
	if is.holdsUp() {
		if k.equal[string(is.digest)] == nil {
			k.equal[string(is.digest)] = map[string]bool{}
		}
		k.equal[string(is.digest)][is.id] = true
	}
	if times := k.begun[string(is.budgetKey)]; counts(is) {
		i, _ := slices.BinarySearch(times, is.began)
		k.begun[string(is.budgetKey)] = slices.Insert(times, i, is.began)
	}
}

// counts: the operation spends of a budget.
func counts(c *columns) bool { return len(c.budgetKey) > 0 && c.began > 0 }

// checkID compares what the file has under an id.
func (k *known) checkID(id string, found []columns) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.checkIDLocked(id, found)
}

func (k *known) checkIDLocked(id string, found []columns) error {
	want, exists := k.marks[k.idMark(id)]
	switch {
	case len(found) == 0 && exists:
		return fmt.Errorf("%w: operation %s is missing", ErrTampered, id)
	case len(found) == 0:
		return nil
	case !exists:
		return fmt.Errorf("%w: operation %s was added", ErrTampered, id)
	case !k.isLocked(&found[0], want):
		return fmt.Errorf("%w: operation %s is not as it was written", ErrTampered, id)
	}
	return nil
}

// isLocked: whole operations are compared as they are, others by their mark.
func (k *known) isLocked(found *columns, want mark) bool {
	if c, ok := k.open[found.id]; ok {
		return bytes.Equal(c.encode(), found.encode())
	}
	return k.columnsMark(found) == want
}

// checkKey compares what the file has under an idempotency key.
func (k *known) checkKey(key []byte, found []columns) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if _, used := k.keys[k.keyMark(key)]; used && len(found) == 0 {
		return fmt.Errorf("%w: the operation of an idempotency key is missing", ErrTampered)
	}
	return k.checkFoundLocked(found)
}

// checkEqual compares the operations that the file has to hold up others.
func (k *known) checkEqual(digest []byte, found []columns) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if n := len(k.equal[string(digest)]); n > len(found) {
		return fmt.Errorf("%w: %d unresolved operations are missing", ErrTampered, n-len(found))
	}
	return k.checkFoundLocked(found)
}

func (k *known) checkFoundLocked(found []columns) error {
	for i := range found {
		if err := k.checkIDLocked(found[i].id, found[i:]); err != nil {
			return err
		}
	}
	return nil
}

// spent is the number of intents of a budget after since.
func (k *known) spent(budgetKey []byte, since int64) int {
	times := k.begun[string(budgetKey)]
	i, _ := slices.BinarySearch(times, since+1)
	return len(times) - i
}

// holding are the operations that hold up equal ones, oldest first.
func (k *known) holding(digest []byte) []columns {
	var list []columns
	for id := range k.equal[string(digest)] {
		list = append(list, k.open[id])
	}
	slices.SortFunc(list, func(a, b columns) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	return list
}

// left are the operations that the run before left in the middle.
func (k *known) left() []columns {
	var list []columns
	for _, c := range k.open {
		if c.state != string(action.Indeterminate) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b columns) int { return cmp.Compare(a.id, b.id) })
	return list
}

// has reports whether there is an operation of that id.
func (k *known) has(id string) bool {
	_, ok := k.marks[k.idMark(id)]
	return ok
}

func (k *known) hasKey(key []byte) bool {
	_, ok := k.keys[k.keyMark(key)]
	return ok
}
