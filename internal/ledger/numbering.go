package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/yett-broker/yett/internal/durable"
)

// maxHole is how many rows may be missing, in all, before what comes behind them
// is taken for rows that somebody added.
const maxHole = 1 << 16

// noEpoch is the epoch of a row that stands for a missing one. No key is of it.
const noEpoch = 0

// missing reports whether the row stands for one that is missing.
func (s sealedRow) missing() bool { return s.epoch == noEpoch && len(s.sealed) == 0 }

// editor is a connection or a transaction that may change what it reads.
type editor interface {
	querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// renumber makes the rows countable again, and keeps what was found in the table
// journal until a person acknowledges it.
func (w *writer) renumber() error {
	ctx, cancel := context.WithTimeout(context.Background(), migrationTime)
	defer cancel()
	tx, err := w.drain.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	found, err := countable(ctx, tx, w.l.place.dir)
	if err == nil && found != "" {
		w.setDoubt(fmt.Errorf("%w: %s", ErrTampered, found))
		_, err = tx.ExecContext(ctx, "UPDATE journal SET problem=? WHERE problem=''", found)
	}
	if err == nil {
		err = writeNodes(ctx, tx)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// countable mends the rows where somebody added some under numbers that no row
// can have, or took some away: the tree has one leaf for each number. Rows below
// 1 and behind wide holes are kept in a file of their own in dir and leave the
// table. For each other missing row there is one that never opens, so that Verify
// goes on telling of it. A row whose hash has not even the size of one gets its
// own. found is empty where nothing was wrong.
func countable(ctx context.Context, e editor, dir string) (found string, err error) {
	strangers, err := strangeRows(ctx, e)
	if err != nil {
		return "", err
	}
	if len(strangers) > 0 {
		name, err := keepRows(dir, strangers)
		if err != nil {
			return "", err
		}
		for _, r := range strangers {
			if _, err := e.ExecContext(ctx, "DELETE FROM rows WHERE n=?", r.n); err != nil {
				return "", err
			}
		}
		found = fmt.Sprintf("row %d has a number that no row can have; what has is kept in %s", strangers[0].n, name)
	}
	missing, err := fillHoles(ctx, e)
	if missing > 0 {
		found = fmt.Sprintf("row %d is missing", missing)
	}
	if err != nil {
		return "", err
	}
	unhashed, err := writeLeaves(ctx, e, "length(leaf)<>32")
	if unhashed > 0 {
		found = fmt.Sprintf("row %d has no hash", unhashed)
	}
	return found, err
}

// rowsAsTheyAre makes the tree that of the rows as they lie in the file, which a
// person has acknowledged: what was changed in them stays, and stays unreadable,
// but is no news for later starts.
func (t *transaction) rowsAsTheyAre(ctx context.Context) {
	if t.err != nil {
		return
	}
	d := t.d
	if _, t.err = countable(ctx, d.conn, d.w.l.place.dir); t.err != nil {
		return
	}
	if _, t.err = writeLeaves(ctx, d.conn, "true"); t.err != nil {
		return
	}
	if t.err = writeNodes(ctx, d.conn); t.err != nil {
		return
	}
	var last int64
	if last, _, t.err = d.ends(ctx); t.err == nil {
		d.tree, t.err = readTree(ctx, d.conn, last)
	}
}

// writeLeaves gives each row that a condition names the hash that it has, and
// returns the last that had another one, 0 if none had.
func writeLeaves(ctx context.Context, e editor, which string) (changed int64, err error) {
	rows, err := e.QueryContext(ctx, "SELECT n, epoch, sealed, leaf FROM rows WHERE "+which+" ORDER BY n")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var n, epoch int64
		var sealed, leaf sql.RawBytes
		if err := rows.Scan(&n, &epoch, &sealed, &leaf); err != nil {
			return 0, err
		}
		if is := leafHash(n, epoch, sealed); !bytes.Equal(is[:], leaf) {
			if _, err := e.ExecContext(ctx, "UPDATE rows SET leaf=? WHERE n=?", is[:], n); err != nil {
				return 0, err
			}
			changed = n
		}
	}
	return changed, rows.Err()
}

// holes are the ends of what is missing: numbers from behind after to before n.
const holes = "SELECT after, n FROM (SELECT lag(n, 1, 0) OVER (ORDER BY n) AS after, n FROM rows WHERE n>0) WHERE n<>after+1 ORDER BY n"

// strangeRows are those below 1, and those before which too many are missing.
func strangeRows(ctx context.Context, e editor) ([]storedRow, error) {
	const first = "SELECT min(n) FROM (SELECT n, n-row_number() OVER (ORDER BY n) AS missing FROM rows WHERE n>0) WHERE missing>?"
	return scanStored(e.QueryContext(ctx, "SELECT n, epoch, sealed, leaf FROM rows WHERE n<1 OR n>=("+first+") ORDER BY n", maxHole))
}

// keepRows writes rows to a file beside the database, a line of JSON each.
func keepRows(dir string, rows []storedRow) (name string, err error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, r := range rows {
		err := lines.Encode(struct {
			N      int64  `json:"n"`
			Epoch  int64  `json:"epoch"`
			Sealed []byte `json:"sealed"`
			Leaf   []byte `json:"leaf"`
		}{r.n, r.epoch, r.sealed, r.leaf})
		if err != nil {
			return "", err
		}
	}
	name = "ledger.rows.kept-" + rand.Text()[:8]
	return name, durable.WriteFile(filepath.Join(dir, name), b.Bytes(), false)
}

// fillHoles puts a row that does not open for each one that is missing, and
// returns the first, 0 if none is.
func fillHoles(ctx context.Context, e editor) (first int64, err error) {
	rows, err := e.QueryContext(ctx, holes)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var missing []int64
	for rows.Next() {
		var after, n int64
		if err := rows.Scan(&after, &n); err != nil {
			return 0, err
		}
		for m := after + 1; m < n; m++ {
			missing = append(missing, m)
		}
	}
	if err := rows.Err(); err != nil || len(missing) == 0 {
		return 0, err
	}
	for _, n := range missing {
		leaf := leafHash(n, noEpoch, nil)
		if _, err := e.ExecContext(ctx, "INSERT INTO rows(n, epoch, sealed, leaf) VALUES(?,?,x'',?)", n, noEpoch, leaf[:]); err != nil {
			return 0, err
		}
	}
	return missing[0], nil
}
