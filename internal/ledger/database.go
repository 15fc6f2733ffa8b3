package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"sync"
	"time"

	"modernc.org/sqlite"
)

const (
	applicationID = 0x59455454 // "YETT"
	formatVersion = 3

	// busyMillis bounds how long a commit waits for a foreign writer.
	busyMillis = 5000
	// checkpointPages is how far the write-ahead log grows before a commit
	// folds it into the file: 16 MiB, so that few commits pay for it.
	checkpointPages = 4000
	// migrationTime bounds a change of version, which reads every row once.
	migrationTime = 30 * time.Minute
)

// isOpen is the condition of operations that something still has to happen
// to. Queries repeat it word for word, so that SQLite uses the index.
const isOpen = "(state IN ('queued','executing') OR (state='indeterminate' AND unsafe=1 AND resolved=0))"

// schema is the format. Verify and Open compare the file's own schema with it,
// so an index or a trigger that somebody added is noticed. since is the first
// version that has the object.
var schema = []struct {
	since     int
	name, sql string
}{
	{1, "epochs", `CREATE TABLE epochs(id INTEGER NOT NULL, recipient BLOB NOT NULL, enc BLOB NOT NULL, sealed BLOB NOT NULL, confirmed BLOB, PRIMARY KEY(id, recipient)) STRICT, WITHOUT ROWID`},
	{1, "rows", `CREATE TABLE rows(n INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, sealed BLOB NOT NULL, leaf BLOB NOT NULL) STRICT`},
	{1, "operations", `CREATE TABLE operations(id TEXT PRIMARY KEY, state TEXT NOT NULL, code TEXT NOT NULL, session TEXT NOT NULL, caller TEXT NOT NULL, digest BLOB NOT NULL, idem BLOB, unsafe INTEGER NOT NULL, intent INTEGER NOT NULL, last_row INTEGER NOT NULL, resolved INTEGER NOT NULL, budget_key BLOB, began INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID`},
	{1, "operations_open", `CREATE INDEX operations_open ON operations(digest) WHERE ` + isOpen},
	{1, "operations_idem", `CREATE UNIQUE INDEX operations_idem ON operations(idem) WHERE idem IS NOT NULL`},
	{1, "operations_budget", `CREATE INDEX operations_budget ON operations(budget_key, began) WHERE budget_key IS NOT NULL AND began > 0`},
	{2, "journal", `CREATE TABLE journal(identity BLOB NOT NULL, generation INTEGER NOT NULL, resume INTEGER NOT NULL, in_use INTEGER NOT NULL, problem TEXT NOT NULL) STRICT`},
	{3, "finished", `CREATE TABLE finished(id TEXT PRIMARY KEY, state TEXT NOT NULL, code TEXT NOT NULL, session TEXT NOT NULL, caller TEXT NOT NULL, digest BLOB NOT NULL, idem BLOB, unsafe INTEGER NOT NULL, intent INTEGER NOT NULL, last_row INTEGER NOT NULL, resolved INTEGER NOT NULL, budget_key BLOB, began INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID`},
	{3, "nodes", `CREATE TABLE nodes(level INTEGER NOT NULL, i INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY(level, i)) STRICT, WITHOUT ROWID`},
}

// processSettings makes two choices that modernc.org/sqlite has for the whole
// process. fdatasync keeps a commit as durable as fsync and skips the
// timestamps; locks of the open file survive a stray close of another
// descriptor. Where a system has neither, SQLite's own ways are right.
var processSettings = sync.OnceFunc(func() {
	_, _ = sqlite.Fdatasync(true)
	_, _ = sqlite.OFDLocking(true)
})

// dataSource names the file; query holds SQLite's URI parameters, pragmas are
// run on every connection in this order.
func dataSource(path string, query url.Values, pragmas ...string) string {
	processSettings()
	for _, p := range pragmas {
		query.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// openWriter opens the one connection that writes, and makes the schema in an
// empty file.
func openWriter(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dataSource(path, url.Values{"mode": {"rw"}},
		fmt.Sprintf("busy_timeout(%d)", busyMillis),
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"fullfsync(1)", // macOS: fsync alone does not reach the platter
		"checkpoint_fullfsync(1)",
		fmt.Sprintf("wal_autocheckpoint(%d)", checkpointPages),
		"temp_store(MEMORY)",
		"trusted_schema(0)",
		"cell_size_check(1)",
	))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := checkWriter(db); err != nil {
		db.Close()
		return nil, explain(err)
	}
	return db, nil
}

func checkWriter(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*busyMillis*1e6)
	defer cancel()
	var objects int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&objects); err != nil {
		return err
	}
	if objects == 0 {
		if err := createSchema(ctx, db); err != nil {
			return fmt.Errorf("creating tables: %w", err)
		}
	}
	version, err := checkFormat(ctx, db)
	if err != nil {
		return err
	}
	if version < formatVersion {
		ctx, cancel := context.WithTimeout(context.Background(), migrationTime)
		defer cancel()
		if err := migrate(ctx, db, version); err != nil {
			return fmt.Errorf("bringing the tables of version %d to version %d: %w", version, formatVersion, err)
		}
	}
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("this file system cannot hold a write-ahead log (journal mode %q)", mode)
	}
	return nil
}

// createSchema runs in one transaction: a crash leaves an empty file, which
// the next Open takes for a new one.
func createSchema(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var id, version int
	if err := tx.QueryRow("PRAGMA application_id").Scan(&id); err != nil {
		return err
	}
	if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if id != 0 || version != 0 {
		return fmt.Errorf("%w: application id %#x, version %d, and no tables", ErrFormat, id, version)
	}
	if _, err := tx.Exec(fmt.Sprintf("PRAGMA application_id=%d", applicationID)); err != nil {
		return err
	}
	if err := addObjects(tx, 0); err != nil {
		return err
	}
	return tx.Commit()
}

// migrate runs in one transaction: a crash leaves the former version. Programs
// of the former version refuse the new one, as they know of no journal.
func migrate(ctx context.Context, db *sql.DB, from int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := addObjects(tx, from); err != nil {
		return err
	}
	return tx.Commit()
}

// addObjects makes what versions after from brought.
func addObjects(tx *sql.Tx, from int) error {
	for _, o := range schema {
		if o.since <= from {
			continue
		}
		if _, err := tx.Exec(o.sql); err != nil {
			return err
		}
	}
	if from < 2 {
		identity := make([]byte, identitySize)
		rand.Read(identity)
		if _, err := tx.Exec("INSERT INTO journal VALUES(?, 0, 1, 0, '')", identity); err != nil {
			return err
		}
	}
	if from > 0 && from < 3 {
		if err := writeNodes(context.Background(), tx); err != nil {
			return fmt.Errorf("computing the nodes of the tree: %w", err)
		}
	}
	_, err := tx.Exec(fmt.Sprintf("PRAGMA user_version=%d", formatVersion))
	return err
}

// querier is a connection, a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// checkFormat refuses anything but a ledger of a known version with exactly
// the schema of that version.
func checkFormat(ctx context.Context, q querier) (version int, err error) {
	if version, err = checkVersion(ctx, q); err != nil {
		return 0, err
	}
	return version, checkSchema(ctx, q, version)
}

func checkVersion(ctx context.Context, q querier) (version int, err error) {
	var id int
	if err := q.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return 0, err
	}
	if id != applicationID {
		return 0, fmt.Errorf("%w: the file is not a ledger (application id %#x)", ErrFormat, id)
	}
	if err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, err
	}
	if version < 1 || version > formatVersion {
		return 0, fmt.Errorf("%w: version %d, this program knows %d", ErrFormat, version, formatVersion)
	}
	return version, nil
}

func checkSchema(ctx context.Context, q querier, version int) error {
	want := make(map[string]string, len(schema))
	for _, o := range schema {
		if o.since <= version {
			want[o.name] = o.sql
		}
	}
	rows, err := q.QueryContext(ctx, "SELECT name, coalesce(sql, '') FROM sqlite_schema")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		if want[name] != text {
			return fmt.Errorf("%w: %q is not part of version %d", ErrFormat, name, version)
		}
		delete(want, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for name := range want {
		return fmt.Errorf("%w: %q is missing", ErrFormat, name)
	}
	return nil
}

// openReaders opens the connections for lookups beside the writer.
func openReaders(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dataSource(path, url.Values{"mode": {"rw"}},
		fmt.Sprintf("busy_timeout(%d)", busyMillis),
		"query_only(1)",
		"temp_store(MEMORY)",
		"trusted_schema(0)",
		"cell_size_check(1)",
	))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	if err := db.Ping(); err != nil {
		db.Close()
		return nil, explain(err)
	}
	return db, nil
}
