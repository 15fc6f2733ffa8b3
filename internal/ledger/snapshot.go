package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// sharedMemory orders, within one process, Open before or after a whole
// Verify: SQLite shares one mapping of ledger.db-shm in a process, and a
// broker must not get the read-only one that Verify asks for.
var sharedMemory sync.RWMutex

var errMoved = errors.New("ledger.db was written to while it was read without locks")

// snapshot calls read with one consistent state of the ledger in dir. It
// makes and changes no file, whether or not a broker runs.
func snapshot(ctx context.Context, dir string, read func(*sql.Tx) error) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoLedger
	} else if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	sharedMemory.RLock()
	defer sharedMemory.RUnlock()
	// A broker may start or end between the look at the files and the
	// opening of them; then the look is repeated.
	for try := 0; ; try++ {
		err := snapshotOnce(ctx, filepath.Join(dir, "ledger.db"), read)
		if !errors.Is(err, errMoved) && sqliteCode(err) != sqlite3.SQLITE_CANTOPEN || try == 4 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func snapshotOnce(ctx context.Context, path string, read func(*sql.Tx) error) error {
	before, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoLedger
	} else if err != nil {
		return err
	}
	if !before.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	query := url.Values{"mode": {"ro"}, "readonly_shm": {"1"}}
	quiet := size(path+"-wal") == 0 // nobody has it open and nothing is left to fold
	switch {
	case quiet:
		query = url.Values{"mode": {"ro"}, "immutable": {"1"}}
	case size(path+"-shm") == 0:
		return fmt.Errorf("%s-wal is there without %[1]s-shm: a broker has to open the ledger once", path)
	}
	if err := readTransaction(ctx, path, query, read); err != nil {
		return err
	}
	if !quiet {
		return nil
	}
	after, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(before, after) || before.Size() != after.Size() || before.ModTime() != after.ModTime() || size(path+"-wal") != 0 {
		return errMoved
	}
	return nil
}

func size(path string) int64 {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

func readTransaction(ctx context.Context, path string, query url.Values, read func(*sql.Tx) error) error {
	db, err := sql.Open("sqlite", dataSource(path, query,
		fmt.Sprintf("busy_timeout(%d)", busyMillis),
		"query_only(1)",
		"temp_store(MEMORY)",
		"trusted_schema(0)",
		"cell_size_check(1)",
	))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	defer db.Close()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return read(tx)
}
