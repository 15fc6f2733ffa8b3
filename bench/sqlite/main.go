// Command sqlite measures the two SQLite drivers without cgo side by side on
// what the ledger asks of one: transactions of a drain, single commits, a walk
// over all rows, a start, and memory. It is a module of its own, so that
// Yett's has one driver.
//
//	go run . [-rounds 5] [-rows 50000]
package main

import (
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "modernc.org/sqlite"
)

// drivers are the names in database/sql, and how each takes its settings.
var drivers = map[string]string{"sqlite": "modernc.org/sqlite", "sqlite3": "ncruces/go-sqlite3"}

func main() {
	rounds := flag.Int("rounds", 5, "runs of each driver, in turn")
	rows := flag.Int("rows", 50_000, "rows of the file that is walked over")
	driver := flag.String("driver", "", "measure this one only, and print JSON")
	flag.Parse()
	if err := run(*driver, *rounds, *rows); err != nil {
		fmt.Fprintln(os.Stderr, "sqlite:", err)
		os.Exit(1)
	}
}

func run(driver string, rounds, rows int) error {
	if driver != "" {
		r, err := measure(driver, rows)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	all := map[string][]result{}
	for range rounds {
		for d := range drivers { // each in a process of its own
			c := exec.Command("/proc/self/exe", "-driver", d, "-rows", fmt.Sprint(rows))
			c.Stderr = os.Stderr
			out, err := c.Output()
			if err != nil {
				return fmt.Errorf("%s: %w", drivers[d], err)
			}
			var r result
			if err := json.Unmarshal(out, &r); err != nil {
				return err
			}
			all[d] = append(all[d], r)
		}
	}
	for d, name := range drivers {
		m := middle(all[d])
		fmt.Printf("%-20s SQLite %s: drain %.0f actions/s, one commit %v, walk %.0f rows/s, open %v, memory %d MiB\n",
			name, m.Version, m.Drained, m.Commit.Round(time.Microsecond), m.Walked, m.Open.Round(10*time.Microsecond), m.MemoryKiB>>10)
	}
	return nil
}

// result is what one process measured.
type result struct {
	Version   string
	Drained   float64       // actions a second: two rows and an operation each, 64 in a transaction
	Commit    time.Duration // one action, durable
	Walked    float64       // rows a second
	Open      time.Duration // of a file with all rows, with its first query
	MemoryKiB int           // resident at the end
}

func measure(driver string, rows int) (r result, err error) {
	dir, err := os.MkdirTemp("", "yq")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "ledger.db")
	db, err := open(driver, path)
	if err != nil {
		return r, err
	}
	if err := db.QueryRow("SELECT sqlite_version()").Scan(&r.Version); err != nil {
		return r, err
	}
	for _, s := range schema {
		if _, err := db.Exec(s); err != nil {
			return r, err
		}
	}
	w, err := newWriter(db)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	for w.next*2 < rows {
		if err := w.commit(64); err != nil {
			return r, err
		}
	}
	r.Drained = float64(w.next) / time.Since(begun).Seconds()
	var each []time.Duration
	for range 300 {
		begun = time.Now()
		if err := w.commit(1); err != nil {
			return r, err
		}
		each = append(each, time.Since(begun))
	}
	slices.Sort(each)
	r.Commit = each[len(each)/2]
	if err := db.Close(); err != nil {
		return r, err
	}
	begun = time.Now()
	if db, err = open(driver, path); err != nil {
		return r, err
	}
	defer db.Close()
	r.Open = time.Since(begun)
	begun = time.Now()
	walked, err := walk(db)
	if err != nil {
		return r, err
	}
	r.Walked = float64(walked) / time.Since(begun).Seconds()
	r.MemoryKiB, err = resident()
	return r, err
}

var schema = []string{
	`CREATE TABLE rows(n INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, sealed BLOB NOT NULL, leaf BLOB NOT NULL) STRICT`,
	`CREATE TABLE operations(id TEXT PRIMARY KEY, state TEXT NOT NULL, session TEXT NOT NULL, caller TEXT NOT NULL, digest BLOB NOT NULL, intent INTEGER NOT NULL, last_row INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID`,
	`CREATE INDEX operations_open ON operations(digest) WHERE state='executing'`,
}

func open(driver, path string) (*sql.DB, error) {
	db, err := sql.Open(driver, "file:"+path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, p := range []string{"busy_timeout=5000", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=4000", "temp_store=MEMORY"} {
		if _, err := db.Exec("PRAGMA " + p); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, db.Ping()
}

// writer does what a drain does.
type writer struct {
	begin, row, operation, end *sql.Stmt
	next                       int
}

func newWriter(db *sql.DB) (*writer, error) {
	w := &writer{}
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&w.begin, "BEGIN IMMEDIATE"},
		{&w.row, "INSERT INTO rows VALUES(?,?,?,?)"},
		{&w.operation, "INSERT OR IGNORE INTO operations VALUES(?,?,?,?,?,?,?,?)"},
		{&w.end, "COMMIT"},
	} {
		var err error
		if *p.stmt, err = db.Prepare(p.text); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *writer) commit(actions int) error {
	if _, err := w.begin.Exec(); err != nil {
		return err
	}
	sealed, leaf := make([]byte, 900), make([]byte, 32)
	rand.Read(sealed)
	rand.Read(leaf)
	for range actions {
		n := 2*w.next + 1
		for k := range 2 {
			if _, err := w.row.Exec(n+k, 1, sealed, leaf); err != nil {
				return err
			}
		}
		if _, err := w.operation.Exec(fmt.Sprintf("op_%020d", w.next), "completed", "session_0123456789", "boot:4711", leaf, n, n+1, time.Now().UnixNano()); err != nil {
			return err
		}
		w.next++
	}
	_, err := w.end.Exec()
	return err
}

// walk reads every row as a verification does.
func walk(db *sql.DB) (n int, err error) {
	next, err := db.Prepare("SELECT n, epoch, sealed, leaf FROM rows WHERE n>? ORDER BY n LIMIT 64")
	if err != nil {
		return 0, err
	}
	defer next.Close()
	for after := int64(0); ; {
		rows, err := next.Query(after)
		if err != nil {
			return n, err
		}
		before := n
		for rows.Next() {
			var epoch int64
			var sealed, leaf []byte
			if err := rows.Scan(&after, &epoch, &sealed, &leaf); err != nil {
				return n, errors.Join(err, rows.Close())
			}
			n++
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil || n == before {
			return n, err
		}
	}
}

func resident() (kib int, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscan(rest, &kib)
	return kib, err
}

// middle is each figure's own median.
func middle(list []result) result {
	of := func(less func(a, b result) int) result {
		slices.SortFunc(list, less)
		return list[len(list)/2]
	}
	m := list[0]
	m.Drained = of(func(a, b result) int { return sign(a.Drained - b.Drained) }).Drained
	m.Commit = of(func(a, b result) int { return int(a.Commit - b.Commit) }).Commit
	m.Walked = of(func(a, b result) int { return sign(a.Walked - b.Walked) }).Walked
	m.Open = of(func(a, b result) int { return int(a.Open - b.Open) }).Open
	m.MemoryKiB = of(func(a, b result) int { return a.MemoryKiB - b.MemoryKiB }).MemoryKiB
	return m
}

func sign(f float64) int {
	switch {
	case f < 0:
		return -1
	case f > 0:
		return 1
	}
	return 0
}
