package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	// drainDelay is how long rows may lie in the journal alone: rows of many
	// actions share a transaction, and a crash leaves little to replay.
	drainDelay = 20 * time.Millisecond
	// maxDrain bounds the rows of one transaction, so that nobody waits long
	// for the connection.
	maxDrain = 2048
)

// statements are prepared once on the writing connection. database/sql does
// not close those of a single connection with it, and an open one would keep
// SQLite's connection alive.
type statements struct {
	all []*sql.Stmt

	begin, commit, rollback              *sql.Stmt
	insertEpoch, confirmEpoch, insertRow *sql.Stmt
	insertOp, putOp, changeOp, beginOp   *sql.Stmt
	deleteOp, dropOp, putFinished        *sql.Stmt
	insertNode                           *sql.Stmt
	clearOps, clearTwice, noProblem      *sql.Stmt
	putEpoch                             *sql.Stmt
	useJournal, drained, foundProblem    *sql.Stmt
	version                              *sql.Stmt
}

func (s *statements) prepare(ctx context.Context, c *sql.Conn) error {
	const values = "(" + operationColumns + ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
	const into = " INTO operations" + values
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.begin, "BEGIN IMMEDIATE"},
		{&s.commit, "COMMIT"},
		{&s.rollback, "ROLLBACK"},
		{&s.insertEpoch, "INSERT INTO epochs(id, recipient, enc, sealed) VALUES(?,?,?,?)"},
		{&s.confirmEpoch, "UPDATE epochs SET confirmed=? WHERE id=? AND recipient=?"},
		{&s.insertRow, "INSERT INTO rows(n, epoch, sealed, leaf) VALUES(?,?,?,?)"},
		{&s.insertOp, "INSERT OR IGNORE" + into},
		{&s.putOp, "INSERT OR REPLACE" + into},
		{&s.changeOp, "UPDATE operations SET state=?, code=?, intent=?, last_row=?, resolved=? WHERE id=? AND state=? AND last_row=? AND resolved=?"},
		{&s.beginOp, "UPDATE operations SET state=?, code=?, intent=?, last_row=?, resolved=?, began=? WHERE id=? AND state=? AND last_row=? AND resolved=?"},
		{&s.deleteOp, "DELETE FROM operations WHERE id=? AND state=? AND last_row=? AND resolved=?"},
		{&s.dropOp, "DELETE FROM operations WHERE id=?"},
		{&s.putFinished, "INSERT OR REPLACE INTO finished" + values},
		{&s.putEpoch, "INSERT OR REPLACE INTO epochs(id, recipient, enc, sealed, confirmed) VALUES(?,?,?,?,?)"},
		{&s.clearOps, "DELETE FROM operations"},
		{&s.clearTwice, "DELETE FROM finished WHERE id IN (SELECT id FROM operations)"},
		{&s.noProblem, "UPDATE journal SET problem=''"},
		{&s.insertNode, "INSERT OR REPLACE INTO nodes(level, i, hash) VALUES(?,?,?)"},
		{&s.useJournal, "UPDATE journal SET identity=?, generation=?, resume=?, in_use=?"},
		{&s.drained, "UPDATE journal SET generation=?, resume=max(resume, ?)"},
		{&s.foundProblem, "UPDATE journal SET problem=? WHERE problem=''"},
		{&s.version, "PRAGMA data_version"},
	} {
		var err error
		if *p.stmt, err = c.PrepareContext(ctx, p.text); err != nil {
			return err
		}
		s.all = append(s.all, *p.stmt)
	}
	return nil
}

func (s *statements) close() error {
	var errs []error
	for _, stmt := range s.all {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

// drain brings rows from the journal into the database. Only rows that are
// durable in the journal come here, or rows of a group that fits in none.
type drain struct {
	w    *writer
	kick chan struct{}
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex // held for a whole transaction; before writer.mu
	conn    *sql.Conn
	stmt    statements
	tree    tree  // of the rows that the database has
	version int64 // of the database as this connection sees it: no commit of its own changes it

	through atomic.Int64 // every row up to it is durable in the database
}

// loop follows the journal until stop.
func (d *drain) loop() {
	defer close(d.done)
	for {
		select {
		case <-d.quit:
			return
		case <-d.kick:
		}
		wait := drainDelay
		for {
			select {
			case <-d.quit:
				return
			case <-time.After(wait):
			}
			if d.upTo(0) == nil {
				d.w.retire()
				break
			}
			wait = retryDelay // rows stay in the journal meanwhile
		}
	}
}

func (d *drain) ring() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

func (d *drain) stop() {
	close(d.quit)
	<-d.done
	d.w.beside.Wait()
}

// upTo brings every row that is durable now into the database, at least those
// up to n.
func (d *drain) upTo(n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.upToLocked(n)
}

func (d *drain) upToLocked(n int64) error {
	for {
		rows, generation := d.w.undrainedRows()
		if len(rows) == 0 {
			return nil
		}
		err := d.transactionLocked(rows, generation, 0, nil)
		d.w.drained(rows, err)
		if err != nil {
			return err
		}
		if n > 0 && d.through.Load() >= n {
			return nil
		}
	}
}

// around writes rows that are not in the journal, after those that are, and
// whatever extra adds, in one transaction.
func (d *drain) around(rows []loggedRow, extra func(*transaction)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.upToLocked(0); err != nil {
		return err
	}
	resume := int64(0)
	if len(rows) > 0 {
		resume = rows[len(rows)-1].n + 1
	}
	return d.transactionLocked(rows, d.w.journalGeneration(), resume, extra)
}

// transaction is one transaction on the writing connection. A statement that
// fails gives up all of it.
type transaction struct {
	d   *drain
	err error
}

func (t *transaction) exec(s *sql.Stmt, args ...any) (changed int64) {
	if t.err != nil {
		return 0
	}
	var r sql.Result
	if r, t.err = s.Exec(args...); t.err != nil {
		return 0
	}
	changed, t.err = r.RowsAffected()
	return changed
}

func (d *drain) transactionLocked(rows []loggedRow, generation uint64, resume int64, extra func(*transaction)) error {
	if _, err := d.stmt.begin.Exec(); err != nil {
		return explain(err)
	}
	d.w.watch.ours(true)
	t := &transaction{d: d}
	d.lookLocked(t)
	before := d.tree.clone()
	for i := range rows {
		t.row(&rows[i])
	}
	t.operations(rows)
	if len(rows) > 0 {
		t.exec(d.stmt.drained, int64(generation), resume)
	}
	if extra != nil {
		extra(t)
	}
	// A crash before this commit finds the rows in the journal, one after it
	// in both; they are compared then. The journal's place is not used again
	// before the commit is durable.
	t.exec(d.stmt.commit)
	if t.err == nil {
		d.w.watch.ours(false)
	} else {
		// Where the commit itself failed its pages may lie in the log with
		// valid sums: after a crash they can come back. They are the same
		// rows that the journal has, or intents that nobody acted on.
		d.tree = before
		_, _ = d.stmt.rollback.Exec() // fails only if SQLite already did it
		// SQLite forgets its pages after a failure, which reads like a commit
		// of somebody else on this connection; the watch tells of real ones.
		_ = d.stmt.version.QueryRow().Scan(&d.version)
		d.w.watch.ours(false)
		return explain(t.err)
	}
	if len(rows) > 0 {
		d.through.Store(rows[len(rows)-1].n)
	}
	return nil
}

func (t *transaction) row(r *loggedRow) {
	leaf := leafHash(r.n, r.epoch, r.sealed)
	t.exec(t.d.stmt.insertRow, r.n, r.epoch, r.sealed, leaf[:])
	t.d.tree.add(leaf, func(level int, i int64, hash tlog.Hash) {
		t.exec(t.d.stmt.insertNode, level, i, hash[:])
	})
}

// operations writes what the rows leave, each operation once. A database that
// does not have what they began with was changed by somebody else; the whole
// operation is written then, so that it is again what this run knows.
func (t *transaction) operations(rows []loggedRow) {
	at := map[string]int{}
	var list []transition
	for i := range rows {
		for _, c := range rows[i].changes {
			if k, ok := at[c.is.id]; ok {
				list[k].is, list[k].retired = c.is, c.retired
				continue
			}
			at[c.is.id] = len(list)
			list = append(list, c)
		}
	}
	tampered := t.d.w.tampered()
	for _, c := range list {
		was, is, changed := c.was, c.is, int64(0)
		if c.retired {
			t.exec(t.d.stmt.putFinished, is.args()...)
		}
		switch {
		case tampered:
		case c.retired && was == nil:
			changed = 1
		case c.retired:
			changed = t.exec(t.d.stmt.deleteOp, is.id, was.state, was.lastRow, was.resolved)
		case was == nil:
			changed = t.exec(t.d.stmt.insertOp, is.args()...)
		case was.began == is.began:
			changed = t.exec(t.d.stmt.changeOp, is.state, is.code, is.intent, is.lastRow, is.resolved,
				is.id, was.state, was.lastRow, was.resolved)
		default: // it was queued and is executing, or more
			changed = t.exec(t.d.stmt.beginOp, is.state, is.code, is.intent, is.lastRow, is.resolved, is.began,
				is.id, was.state, was.lastRow, was.resolved)
		}
		if changed == 0 && t.err == nil {
			if !tampered {
				tampered = true
				t.d.w.setDoubt(fmt.Errorf("%w: operation %s is not as it was written", ErrTampered, is.id))
			}
			if c.retired {
				t.exec(t.d.stmt.dropOp, is.id)
			} else {
				t.exec(t.d.stmt.putOp, is.args()...)
			}
		}
	}
}

// lookLocked notices commits of others: this connection's own do not change
// what it reads here.
func (d *drain) lookLocked(t *transaction) {
	var now int64
	if t.err = d.stmt.version.QueryRow().Scan(&now); t.err != nil {
		return
	}
	if now != d.version {
		d.version = now
		d.w.setDoubt(errForeignCommit)
	}
}
