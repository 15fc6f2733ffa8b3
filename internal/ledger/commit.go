package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// statements are prepared once on the writing connection. database/sql does
// not close those of a single connection with it, and an open one would keep
// SQLite's connection alive.
type statements struct {
	all []*sql.Stmt

	begin, commit, rollback              *sql.Stmt
	insertEpoch, confirmEpoch, insertRow *sql.Stmt
	putOp, changeOp                      *sql.Stmt
	operation, unresolved, keyHolder     *sql.Stmt
	spent                                *sql.Stmt
}

func (s *statements) prepare(ctx context.Context, c *sql.Conn) error {
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.begin, "BEGIN IMMEDIATE"},
		{&s.commit, "COMMIT"},
		{&s.rollback, "ROLLBACK"},
		{&s.insertEpoch, "INSERT INTO epochs(id, recipient, enc, sealed) VALUES(?,?,?,?)"},
		{&s.insertRow, "INSERT INTO rows(n, epoch, sealed, leaf) VALUES(?,?,?,?)"},
		{&s.confirmEpoch, "UPDATE epochs SET confirmed=? WHERE id=? AND recipient=?"},
		{&s.changeOp, "UPDATE operations SET state=?, code=?, intent=?, last_row=?, resolved=? WHERE id=?"},
		{&s.putOp, "INSERT OR REPLACE INTO operations(" + operationColumns + ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
		{&s.operation, selectOperation + "WHERE id=?"},
		{&s.unresolved, selectUnresolved},
		{&s.keyHolder, selectKeyHolder},
		{&s.spent, "SELECT count(*) FROM (SELECT 1 FROM operations WHERE budget_key=? AND began>? AND budget_key IS NOT NULL AND began > 0 LIMIT ?)"},
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

// batch is one transaction. A statement that fails gives up all of it.
type batch struct {
	w   *writer
	now time.Time
	n   int64 // number of the next row
	err error

	undo []func() // takes back what known was told
}

// exec runs a statement that changes something.
func (b *batch) exec(s *sql.Stmt, args ...any) {
	if b.err == nil {
		_, b.err = s.Exec(args...)
	}
}

// scan reads one row into dest and reports whether there was one.
func (b *batch) scan(s *sql.Stmt, args []any, dest ...any) bool {
	if b.err != nil {
		return false
	}
	err := s.QueryRow(args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false
	}
	b.err = err
	return err == nil
}

// read asks the file for operations.
func (b *batch) read(s *sql.Stmt, args ...any) []columns {
	if b.err != nil {
		return nil
	}
	list, err := scanOperations(s.Query(args...))
	b.err = err
	return list
}

// transition is one change of an operation; was is nil for a new one. tellWas
// puts it into the row.
type transition struct {
	was, is *columns
	tellWas bool
}

// append writes a row and the changes that it tells of, and returns its
// number, which b.n was before.
func (b *batch) append(plain []byte, changes ...transition) int64 {
	n := b.n
	b.n++
	if b.err != nil {
		return n
	}
	known := b.w.known
	var e effect
	for _, t := range changes {
		c := change{Is: t.is.encode()}
		if t.tellWas {
			c.Was = t.was.encode()
		}
		e.Operations = append(e.Operations, c)
		known.replace(t.was, t.is)
		b.undo = append(b.undo, func() { known.replace(t.is, t.was) })
		b.put(t)
	}
	sum := known.table.sum()
	e.Table = sum[:]
	whole, err := e.join(plain)
	if err != nil {
		b.err = err
		return n
	}
	sealed := b.w.epoch.seal(n, whole)
	leaf := leafHash(n, b.w.epoch.id, sealed)
	b.exec(b.w.stmt.insertRow, n, b.w.epoch.id, sealed, leaf[:])
	return n
}

// put writes what a transition leaves. After a change by somebody else that is
// the whole operation, so that it is again what this run knows.
func (b *batch) put(t transition) {
	if t.was != nil && t.was.began == t.is.began && b.w.doubted() == nil {
		b.exec(b.w.stmt.changeOp, t.is.state, t.is.code, t.is.intent, t.is.lastRow, t.is.resolved, t.is.id)
		return
	}
	b.exec(b.w.stmt.putOp, t.is.args()...)
}

// commit writes jobs, and before them what earlier failures left, in one
// transaction with one sync, and gives each job its result.
func (w *writer) commit(jobs []*job) {
	all := w.kept
	for _, j := range jobs {
		if j.claim() {
			all = append(all, j)
		}
	}
	w.mu.Lock()
	lost := w.lost
	w.mu.Unlock()
	if len(all) == 0 && lost == 0 {
		return
	}
	results, err := w.transaction(all, lost)
	if err != nil {
		w.failed(all, unavailable(err))
		return
	}
	w.kept = nil
	w.mu.Lock()
	w.lost -= lost
	if w.lost == 0 {
		w.sick = nil
	}
	w.mu.Unlock()
	for i, j := range all {
		w.decided(j, results[i])
	}
}

func (w *writer) transaction(jobs []*job, lost int64) (results []error, err error) {
	if _, err := w.stmt.begin.Exec(); err != nil {
		return nil, err
	}
	b := &batch{w: w, now: w.l.now(), n: w.next}
	results = make([]error, len(jobs))
	for i, j := range jobs {
		results[i] = j.run(b)
		if b.err != nil {
			break
		}
	}
	if b.err == nil && (len(w.kept) > 0 || lost > 0) {
		b.append(w.resumed(len(w.kept), lost))
	}
	// A crash before this commit leaves nothing of the batch, and nobody has
	// been told anything. A crash after it leaves intents without outcomes,
	// which the next start finds.
	b.exec(w.stmt.commit)
	if b.err != nil {
		// Where the commit itself failed its pages may lie in the log with
		// valid sums: after a crash they can come back, as an intent that
		// nobody acted on. That reads as indeterminate, the safe side.
		_, _ = w.stmt.rollback.Exec() // fails only if SQLite already did it
		for _, undo := range slices.Backward(b.undo) {
			undo()
		}
		return nil, b.err
	}
	w.commits.Add(1)
	w.next = b.n
	w.l.entries.Store(b.n - 1)
	return results, nil
}

// resumed is the row that tells of a time in which nothing could be written.
func (w *writer) resumed(kept int, lost int64) []byte {
	outcome, _ := json.Marshal(map[string]int64{"written_late": int64(kept), "lost": lost})
	return w.l.encodeAnyway(Row{Kind: "ledger_resumed", Outcome: outcome})
}

// failed tells every caller and keeps the jobs that tell what has happened.
func (w *writer) failed(jobs []*job, err error) {
	var kept []*job
	rows := 0
	var lost int64
	for _, j := range jobs {
		switch {
		case j.outcome: // there are no more of them than intents
			kept = append(kept, j)
		case j.keep && rows < maxKept:
			kept = append(kept, j)
			rows++
		case j.keep:
			lost++
		}
	}
	w.kept = kept
	w.retryAt = time.Now().Add(retryDelay)
	w.mu.Lock()
	w.lost += lost
	if len(kept) > 0 || w.lost > 0 {
		w.sick = err
	}
	w.mu.Unlock()
	// Only now: whoever hears of a lost outcome finds the ledger unhealthy.
	for _, j := range jobs {
		w.decided(j, err)
	}
}

func (w *writer) decided(j *job, err error) {
	if j.outcome && j.done != nil {
		w.outcomes.Add(-1)
	}
	j.finish(err)
}
