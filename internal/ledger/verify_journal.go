package ledger

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// tornTries is how often a torn end is looked at again: beside a broker it is
// a group that is being written.
const tornTries, tornWait = 5, 20 * time.Millisecond

// findJournal reads the journal of a directory, beside a broker too. There is
// no content where why says so; an error means that it could not be read.
func findJournal(ctx context.Context, dir string) (c *journalContent, why string, err error) {
	for try := 1; ; try++ {
		c, why, err = findJournalOnce(filepath.Join(dir, journalName))
		if c == nil || c.torn == nil || try == tornTries {
			return c, why, err
		}
		select {
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-time.After(tornWait):
		}
	}
}

func findJournalOnce(path string) (*journalContent, string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "it is missing", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, "it is no regular file", err
	}
	c, err := readJournal(f)
	if errors.Is(err, errNoJournal) {
		return nil, "it is no journal", nil
	}
	return c, "", err
}

// checkJournal holds the journal against the database, as a start does, and
// keeps what the database does not have yet. before was read before the
// database was, so it misses nothing of that.
func (v *verifier) checkJournal(ctx context.Context, before *journalContent) error {
	state, err := readJournalState(ctx, v.tx)
	if errors.Is(err, ErrTampered) {
		v.problem("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if state.problem != "" {
		v.problem("a start found: %s", state.problem)
	}
	// What is read now misses nothing that the database has.
	now, why, err := findJournal(ctx, v.dir)
	if err != nil {
		return err
	}
	if now != nil {
		now.rows = nil
		if before != nil && bytes.Equal(before.identity, now.identity) {
			now.rows = before.rows
		}
		if now.torn != nil {
			v.problem("ledger.journal: the %d bytes at %d are no group: a broker died writing them, or they were changed", len(now.torn.bytes), now.torn.offset)
		}
	}
	r := plan(state, v.head, now, why)
	err = r.compare(func(n int64) (leaf []byte, err error) {
		err = v.tx.QueryRowContext(ctx, "SELECT leaf FROM rows WHERE n=?", n).Scan(&leaf)
		return leaf, err
	})
	if err != nil {
		return err
	}
	if r.problem != "" {
		v.problem("%s", r.problem)
	}
	v.beyond, v.over, v.gone = r.rows, map[string]columns{}, map[string]bool{}
	for _, row := range r.rows {
		for _, c := range row.changes {
			v.over[c.is.id], v.gone[c.is.id] = *c.is, c.retired
		}
	}
	return nil
}

// storedBeyond are the rows of the journal as if the database had them.
func (v *verifier) storedBeyond() []storedRow {
	var list []storedRow
	for _, r := range v.beyond {
		leaf := leafHash(r.n, r.epoch, r.sealed)
		list = append(list, storedRow{r.sealedRow, leaf[:]})
	}
	return list
}

// eachBeyond calls fn for the operations that only the journal has.
func (v *verifier) eachBeyond(seen map[string]bool, fn func(storedOperation) error) error {
	for _, id := range slices.Sorted(maps.Keys(v.over)) {
		if seen[id] {
			continue
		}
		if err := fn(v.storedOver(v.over[id], false, false, false)); err != nil {
			return err
		}
	}
	return nil
}

// storedOver is an operation as the journal leaves it. The rest is what the
// database says of rows that it may have.
func (v *verifier) storedOver(is columns, intent, last, resolve bool) storedOperation {
	has := func(n int64) bool { return n > v.head && n <= v.head+int64(len(v.beyond)) }
	return storedOperation{columns: is, finished: v.gone[is.id], hasIntent: intent || has(is.intent),
		hasLast: has(is.lastRow) || v.gone[is.id] && last, hasResolve: has(is.resolved) || v.gone[is.id] && resolve}
}
