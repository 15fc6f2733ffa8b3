package ledger

import (
	"fmt"
	"os"
	"sync"
)

var errForeignCommit = fmt.Errorf("%w: another program committed to it", ErrTampered)

// watch notices commits to the database that are not the drain's. Every commit
// in a write-ahead log changes the header of the log's index, the file -shm that
// all programs with the database open share: it holds the number of the commit
// and its checksum, twice (https://www.sqlite.org/walformat.html).
// Asking SQLite for PRAGMA data_version compares the same bytes at thirty times
// the price, and every action asks.
type watch struct {
	mu     sync.Mutex
	index  *os.File
	seen   indexHeader
	inside bool // a transaction of ours holds the lock: what changes now is its work
}

// indexHeader is both copies of the header.
type indexHeader [2 * 48]byte

// open begins to watch. SQLite has the database open, so the index is there and
// stays the one that it is.
func (w *watch) open(database string) error {
	var err error
	if w.index, err = os.Open(database + "-shm"); err != nil {
		return fmt.Errorf("opening the index of the write-ahead log: %w", err)
	}
	w.seen, err = w.readLocked()
	return err
}

func (w *watch) readLocked() (h indexHeader, err error) {
	if _, err = w.index.ReadAt(h[:], 0); err != nil {
		err = fmt.Errorf("reading the index of the write-ahead log: %w", err)
	}
	return h, err
}

// ours tells when a transaction of our own holds SQLite's lock. A foreign one
// between its end and the reading here is noticed by the next transaction.
func (w *watch) ours(now bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside = now
	if !now {
		if h, err := w.readLocked(); err == nil {
			w.seen = h
		}
	}
}

// foreign reports whether somebody else has committed since the last look.
// What cannot be read is left to the next transaction, which fails then.
func (w *watch) foreign() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside {
		return false
	}
	h, err := w.readLocked()
	if err != nil || h == w.seen {
		return false
	}
	w.seen = h
	return true
}

// close comes after SQLite has let the database go: where its locks belong to
// the process, closing any descriptor of the file gives them up.
func (w *watch) close() error {
	if w.index == nil {
		return nil
	}
	return w.index.Close()
}
