package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

var errForeignCommit = fmt.Errorf("%w: another program committed to it", ErrTampered)

// lookEvery is how long a look counts for those who come after it: less than
// another program's commit takes.
const lookEvery = 50 * time.Microsecond

// watch notices commits to the database that are not the drain's. It has a
// connection of its own, for which every commit counts.
type watch struct {
	mu      sync.Mutex
	conn    *sql.Conn
	version *sql.Stmt
	seen    int64
	looked  time.Time
	inside  bool // a transaction of ours holds the lock: what changes now is its work
}

func (w *watch) open(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), busyMillis*time.Millisecond)
	defer cancel()
	var err error
	if w.conn, err = db.Conn(ctx); err != nil {
		return explain(err)
	}
	if w.version, err = w.conn.PrepareContext(ctx, "PRAGMA data_version"); err != nil {
		return explain(err)
	}
	w.seen, err = w.readLocked()
	return explain(err)
}

func (w *watch) readLocked() (v int64, err error) {
	err = w.version.QueryRow().Scan(&v)
	return v, err
}

// ours tells when a transaction of our own holds SQLite's lock. A foreign one
// between its end and the reading here is noticed by the next transaction.
func (w *watch) ours(now bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside = now
	if !now {
		if v, err := w.readLocked(); err == nil {
			w.seen = v
		}
	}
}

// foreign reports whether somebody else has committed since the last look.
// What cannot be read is left to the next transaction, which fails then.
func (w *watch) foreign() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside || time.Since(w.looked) < lookEvery {
		return false
	}
	v, err := w.readLocked()
	w.looked = time.Now()
	if err != nil || v == w.seen {
		return false
	}
	w.seen = v
	return true
}

func (w *watch) close() {
	if w.version != nil {
		w.version.Close()
	}
	if w.conn != nil {
		w.conn.Close()
	}
}
