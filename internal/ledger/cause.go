package ledger

import (
	"errors"
	"fmt"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteCode is the primary result code of err, 0 if SQLite did not make it.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// explained is a failure of SQLite in plain words.
type explained struct {
	words string
	error
}

func (e *explained) Error() string { return e.words + ": " + e.error.Error() }
func (e *explained) Unwrap() error { return e.error }

// explain puts the cause of the usual SQLite failures in plain words.
func explain(err error) error {
	words := ""
	switch sqliteCode(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		words = "another program holds a lock on ledger.db"
	case sqlite3.SQLITE_FULL:
		words = "no room left on the file system of ledger.db"
	case sqlite3.SQLITE_READONLY:
		words = "ledger.db or its directory is read-only"
	case sqlite3.SQLITE_CANTOPEN:
		words = "ledger.db or a file beside it cannot be opened"
	case sqlite3.SQLITE_IOERR:
		words = "reading or writing ledger.db failed"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		words = "ledger.db is damaged"
	}
	if _, twice := errors.AsType[*explained](err); words == "" || twice {
		return err
	}
	return &explained{words, err}
}

// Cause is why the ledger cannot be read or written, in a few words without
// values, or "".
func Cause(err error) string {
	if e, ok := errors.AsType[*explained](err); ok {
		return e.words
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "no room left on the file system of ledger.journal"
	case errors.Is(err, syscall.EFBIG):
		return "a limit on the size of files"
	case errors.Is(err, syscall.EIO):
		return "the disk of ledger.journal fails"
	}
	return ""
}

// unavailable marks err as a failure to make something durable.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, explain(err))
}
