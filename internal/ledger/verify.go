package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	sqlite3 "modernc.org/sqlite/lib"
)

// maxProblems bounds a report; a damaged file can have one for every row.
const maxProblems = 100

// Report is what Verify found. RootHash is the RFC 6962 root over the rows as
// they lie in the file. Checkpoint is the newest head, whose signature is not
// checked here; it is empty until one was signed.
type Report struct {
	OK         bool     `json:"ok"`
	Entries    int64    `json:"entries"`
	RootHash   string   `json:"root_hash"`
	Checkpoint string   `json:"checkpoint"`
	Problems   []string `json:"problems"`
}

// Verify checks the ledger in dir, the database and what the journal has beyond
// it: SQLite's structure, the schema, the numbering, every leaf hash, and that each operation is in a possible state
// and names rows that exist. With o it opens every row and compares every
// column of every operation with the last row that tells of it, and what each
// run found with what the one before left. It only reads, beside a running
// broker too.
// What is wrong with the ledger is in the report; an error means that it
// could not be checked. progress may be nil.
func Verify(ctx context.Context, dir string, o *Opener, progress func(done, total int64)) (Report, error) {
	var v *verifier
	err := snapshot(ctx, dir, func(tx *sql.Tx) error {
		v = &verifier{dir: dir, tx: tx, keys: keyring{opener: o}, progress: progress}
		v.report.Problems = []string{}
		v.readHead()
		return v.run(ctx)
	})
	if err != nil {
		return Report{Problems: []string{}}, fmt.Errorf("verifying ledger: %w", explain(err))
	}
	return v.report, nil
}

type verifier struct {
	dir      string
	tx       *sql.Tx
	keys     keyring
	progress func(done, total int64)
	report   Report
	more     int // problems beyond the bound

	head   int64              // the newest row of the database
	beyond []loggedRow        // rows that the journal has and the database has not
	over   map[string]columns // operations as those rows leave them
	gone   map[string]bool    // of these, what they take to the table finished

	operation   *sql.Stmt
	tree        tree
	table       tableHash
	hasFinished bool // the database is of a version that has the table
	node        *sql.Stmt
	nodes       int64 // that the rows make
	signed      *Checkpoint
	unopened    bool  // some row could not be opened
	told        int64 // operations whose last row tells of them
}

func (v *verifier) problem(format string, args ...any) {
	if len(v.report.Problems) == maxProblems {
		v.more++
		return
	}
	v.report.Problems = append(v.report.Problems, fmt.Sprintf(format, args...))
}

func (v *verifier) run(ctx context.Context) error {
	// The journal is read before the database: rows go from there to here.
	before, _, err := findJournal(ctx, v.dir)
	if err != nil {
		return err
	}
	version, err := checkVersion(ctx, v.tx)
	if err != nil {
		return err
	}
	if err := v.checkAll(ctx, version, before); err != nil {
		if c := sqliteCode(err); c != sqlite3.SQLITE_CORRUPT && c != sqlite3.SQLITE_NOTADB {
			return err
		}
		v.problem("the file is damaged and was not read to its end: %v", err)
	}
	v.report.Entries = v.tree.size
	v.report.RootHash = v.tree.root().String()
	if v.more > 0 {
		v.report.Problems = append(v.report.Problems, fmt.Sprintf("and %d more", v.more))
	}
	v.report.OK = len(v.report.Problems) == 0
	return nil
}

func (v *verifier) checkAll(ctx context.Context, version int, before *journalContent) error {
	if err := checkSchema(ctx, v.tx, version); err != nil {
		if sqliteCode(err) != 0 {
			return err
		}
		v.problem("%v", err)
	}
	var err error
	anywhere := selectOperation + "WHERE id=?1"
	if version >= 3 {
		v.hasFinished = true
		anywhere += " UNION ALL " + selectFinished + "WHERE id=?1"
	}
	if v.operation, err = v.tx.PrepareContext(ctx, anywhere); err != nil {
		return err
	}
	if v.keys.epoch, err = v.tx.PrepareContext(ctx, selectEpoch); err != nil {
		return err
	}
	if err := v.tx.QueryRowContext(ctx, "SELECT coalesce(max(n), 0) FROM rows").Scan(&v.head); err != nil {
		return err
	}
	if version >= 2 {
		if err := v.checkJournal(ctx, before); err != nil {
			return err
		}
	}
	if v.hasFinished {
		if v.node, err = v.tx.PrepareContext(ctx, "SELECT hash FROM nodes WHERE level=? AND i=?"); err != nil {
			return err
		}
	}
	for _, check := range []func(context.Context) error{v.checkPages, v.checkEpochs, v.checkRows, v.checkHead, v.checkNodes, v.checkOperations, v.checkRuns} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkPages lets SQLite check its own structure: an index that does not
// match its table would make the broker miss an operation.
func (v *verifier) checkPages(ctx context.Context) error {
	rows, err := v.tx.QueryContext(ctx, "PRAGMA integrity_check(20)")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return err
		}
		if s != "ok" {
			v.problem("SQLite: %s", s)
		}
	}
	return rows.Err()
}

func (v *verifier) checkEpochs(ctx context.Context) error {
	var absent, count, last int64
	err := v.tx.QueryRowContext(ctx, "SELECT count(DISTINCT id), coalesce(max(id), 0), count(*) FILTER (WHERE id < 1) FROM epochs").
		Scan(&count, &last, &absent)
	if err != nil {
		return err
	}
	if count != last || absent != 0 {
		v.problem("epochs: %d keys, numbered up to %d", count, last)
	}
	return nil
}

// checkRows walks the rows in order, a few at a time.
func (v *verifier) checkRows(ctx context.Context) error {
	var after, epoch int64
	next, err := v.tx.PrepareContext(ctx, "SELECT r.n, r.epoch, r.sealed, r.leaf, EXISTS(SELECT 1 FROM epochs e WHERE e.id=r.epoch) FROM rows r WHERE r.n>? ORDER BY r.n LIMIT ?")
	if err != nil {
		return err
	}
	after = math.MinInt64
	expected := int64(1)
	for {
		list, err := scanStored(next.QueryContext(ctx, after, rowsAtOnce))
		if err != nil {
			return err
		}
		last := len(list) == 0
		if last {
			if list, err = v.storedBeyond(ctx); err != nil {
				return err
			}
		}
		for _, s := range list {
			after = s.n
			if s.n != expected {
				v.problem("row %d comes where row %d belongs", s.n, expected)
			}
			expected = s.n + 1
			if s.epoch < epoch {
				v.problem("row %d is of epoch %d, after rows of epoch %d", s.n, s.epoch, epoch)
			}
			epoch = s.epoch
			if err := v.checkRow(ctx, s); err != nil {
				return err
			}
		}
		if v.progress != nil {
			v.progress(v.tree.size, max(v.head+int64(len(v.beyond)), v.tree.size))
		}
		if last {
			return nil
		}
	}
}

// storedRow is a row with what Verify compares it with.
type storedRow struct {
	sealedRow
	leaf     []byte
	hasEpoch bool
}

func scanStored(rows *sql.Rows, err error) ([]storedRow, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []storedRow
	for rows.Next() {
		var s storedRow
		if err := rows.Scan(&s.n, &s.epoch, &s.sealed, &s.leaf, &s.hasEpoch); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

func (v *verifier) checkRow(ctx context.Context, s storedRow) error {
	leaf := leafHash(s.n, s.epoch, s.sealed)
	v.tree.add(leaf, v.checkNode)
	v.compareHead()
	if string(leaf[:]) != string(s.leaf) {
		v.problem("row %d does not match its hash", s.n)
	}
	if !s.hasEpoch {
		v.problem("row %d is of epoch %d, which has no key", s.n, s.epoch)
	}
	if v.keys.opener == nil || !s.hasEpoch {
		v.unopened = true
		return nil
	}
	r, e, err := v.keys.open(ctx, s.sealedRow)
	if err != nil {
		if sqliteCode(err) != 0 || ctx.Err() != nil {
			return err
		}
		v.unopened = true
		v.problem("row %d: %v", s.n, err)
		return nil
	}
	for _, c := range e.Operations {
		told, err := parseColumns(c.Is)
		if err != nil {
			v.problem("row %d: %v", s.n, err)
			continue
		}
		if err := v.checkTold(ctx, r.N, told); err != nil {
			return err
		}
	}
	return nil
}
