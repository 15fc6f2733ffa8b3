package ledger

import (
	"errors"
	"fmt"

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
	default:
		return err
	}
	return fmt.Errorf("%s: %w", words, err)
}

// unavailable marks err as a failure to make something durable.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, explain(err))
}
