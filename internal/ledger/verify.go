package ledger

import (
	"context"
	"database/sql"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"
)

// maxProblems bounds a report; a damaged file can have one for every row.
const maxProblems = 100

// Report is what Verify found. RootHash is the RFC 6962 root over the rows as
// they lie in the file. Checkpoint is the newest head, whose signature is checked
// by VerifyWithVault alone; it is empty until one was signed. Vault is the
// generation of the vault that the head, or the newest opened row, tells.
type Report struct {
	OK         bool     `json:"ok"`
	Entries    int64    `json:"entries"`
	RootHash   string   `json:"root_hash"`
	Checkpoint string   `json:"checkpoint"`
	Vault      uint64   `json:"vault_generation"`
	Problems   []string `json:"problems"`
}

// Problem adds what else is wrong.
func (r *Report) Problem(format string, args ...any) {
	r.OK, r.Problems = false, append(r.Problems, fmt.Sprintf(format, args...))
}

// Verify checks the ledger in dir, the database and what the journal has beyond
// it: SQLite's structure, the schema, the numbering, every leaf hash, and that each operation is in a possible state
// and names rows that exist. With o it opens every row and compares every
// column of every operation with the last row that tells of it, and what each
// run found with what the one before left. It only reads, beside a running
// broker too.
// What is wrong with the ledger is in the report; an error means that it
// could not be checked. progress may be nil. Each of looks is shown every row that
// opens, in order; its error is a problem of that row.
func Verify(ctx context.Context, dir string, o *Opener, progress func(done, total int64), looks ...func(Row) error) (Report, error) {
	return verify(ctx, dir, verifier{keys: keyring{opener: o}, progress: progress, looks: looks})
}

// VerifyWithVault is Verify with what an unlocked vault knows besides: the key of
// the heads and the head that it keeps. The generation in h is not looked at: a
// broker may have saved the vault since; the report has the one to compare.
func VerifyWithVault(ctx context.Context, dir string, o *Opener, h HeadFor, progress func(done, total int64), looks ...func(Row) error) (Report, error) {
	return verify(ctx, dir, verifier{keys: keyring{opener: o}, vault: &h, progress: progress, looks: looks})
}

func verify(ctx context.Context, dir string, how verifier) (Report, error) {
	var v *verifier
	err := snapshot(ctx, dir, func(tx *sql.Tx) error {
		again := how
		v = &again
		v.dir, v.tx = dir, tx
		v.report.Problems = []string{}
		v.readHeads()
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
	vault    *HeadFor // nil without an unlocked vault
	progress func(done, total int64)
	looks    []func(Row) error
	report   Report
	more     int // problems beyond the bound

	head   int64              // the newest row of the database
	beyond []loggedRow        // rows that the journal has and the database has not
	over   map[string]columns // operations as those rows leave them
	gone   map[string]bool    // of these, what they take to the table finished

	told        *sql.Stmt
	epochs      map[int64]bool
	tree        tree
	table       tableHash
	hasFinished bool // the database is of a version that has the table
	node        *sql.Stmt
	nodes       int64 // that the rows make
	signed      []namedHead
	toldVault   uint64 // by the newest row of a confirmed run
	unopened    bool   // some row could not be opened
	newest      int64  // operations whose last row tells of them
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
	v.report.Vault = max(v.report.Vault, v.toldVault)
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
	v.hasFinished = version >= 3
	if v.told, err = v.tx.PrepareContext(ctx, selectTold(v.hasFinished)); err != nil {
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
	for _, check := range []func(context.Context) error{v.checkPages, v.checkEpochs, v.checkRows, v.checkHeads, v.checkNodes, v.checkOperations, v.checkRuns} {
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
	rows, err := v.tx.QueryContext(ctx, "SELECT DISTINCT id FROM epochs")
	if err != nil {
		return err
	}
	defer rows.Close()
	v.epochs = map[int64]bool{}
	last, absent := int64(0), false
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		v.epochs[id] = true
		last, absent = max(last, id), absent || id < 1
	}
	if int64(len(v.epochs)) != last || absent {
		v.problem("epochs: %d keys, numbered up to %d", len(v.epochs), last)
	}
	return rows.Err()
}
