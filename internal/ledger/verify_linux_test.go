package ledger

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

func TestVerifyOfNothing(t *testing.T) {
	in := newInstallation(t)
	if _, err := Verify(t.Context(), in.dir, nil, nil); !errors.Is(err, ErrNoLedger) {
		t.Fatalf("no directory: %v", err)
	}
	if err := os.Mkdir(in.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), in.dir, nil, nil); !errors.Is(err, ErrNoLedger) {
		t.Fatalf("empty directory: %v", err)
	}
	if entries, err := os.ReadDir(in.dir); err != nil || len(entries) != 0 {
		t.Fatalf("Verify made %v, %v", entries, err)
	}
	if err := os.Symlink(filepath.Join(filled(t).dir, "ledger.db"), filepath.Join(in.dir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), in.dir, nil, nil); err == nil {
		t.Fatal("a link was verified")
	}
}

// TestLogWithoutSharedMemory: a copy without ledger.db-shm must not be read
// without its newest rows.
func TestLogWithoutSharedMemory(t *testing.T) {
	in := filled(t)
	if err := os.WriteFile(filepath.Join(in.dir, "ledger.db-wal"), []byte("rows of a broker that died"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(t.Context(), in.dir, nil, nil); err == nil || !strings.Contains(err.Error(), "has to open the ledger once") {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestUnknownFormatIsRefused(t *testing.T) {
	in := filled(t)
	for _, statement := range []string{
		"PRAGMA user_version=4", "PRAGMA user_version=0", "PRAGMA application_id=7",
		"CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END",
	} {
		tamper(t, in, func() {
			if l, err := Open(in.dir, Options{AuditPublicKey: in.public}); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: Open: %v", statement, err)
				if err == nil {
					l.Close()
				}
			}
			if strings.HasPrefix(statement, "PRAGMA") {
				if _, err := Verify(t.Context(), in.dir, nil, nil); !errors.Is(err, ErrFormat) {
					t.Errorf("%s: Verify: %v", statement, err)
				}
			}
		}, statement)
	}
	if _, err := Open(in.dir, Options{}); err == nil {
		t.Error("opened without an audit key")
	}
}

// TestProgressAndBound: a report of a broken ledger stays small.
func TestProgressAndBound(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	for range 3 * maxProblems {
		l.AppendSoon(row("soon"))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tamper(t, in, func() {
		var done, total int64
		r, err := Verify(t.Context(), in.dir, nil, func(d, of int64) {
			if d < done {
				t.Errorf("progress from %d to %d", done, d)
			}
			done, total = d, of
		})
		if err != nil || r.OK || len(r.Problems) != maxProblems+1 || done != 3*maxProblems || total != done {
			t.Errorf("%d problems, %d of %d: %v", len(r.Problems), done, total, err)
		}
	}, "UPDATE rows SET leaf=zeroblob(32)")
}

// TestVerifyAndOpenInOneProcess: the mapping that a Verify made must not be
// the one that a broker writes with.
func TestVerifyAndOpenInOneProcess(t *testing.T) {
	in := newInstallation(t)
	p := in.start(t, "hold")
	p.line(t)
	p.kill()
	opened := make(chan error, 1)
	var early error
	started := false
	_, err := Verify(t.Context(), in.dir, in.opener(t), func(int64, int64) {
		if started {
			return
		}
		started = true
		go func() {
			l, err := Open(in.dir, Options{AuditPublicKey: in.public})
			if err == nil {
				_, err = l.Append(background, row("one"))
				err = errors.Join(err, l.Close())
			}
			opened <- err
		}()
		// Open is through, or it waits for this Verify: then no reader
		// gets past it any more.
		for sharedMemory.TryRLock() {
			sharedMemory.RUnlock()
			select {
			case early = <-opened:
				opened <- early
				return
			default:
				runtime.Gosched()
			}
		}
	})
	if err := errors.Join(err, early, <-opened); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyBesideWriters verifies again and again while rows come.
func TestVerifyBesideWriters(t *testing.T) {
	in := newInstallation(t)
	p := in.start(t, "workload")
	o := in.opener(t)
	for told := int64(5); told <= 50; told += 5 {
		for range 5 {
			p.line(t)
		}
		r, err := Verify(t.Context(), in.dir, o, nil)
		if err != nil || !r.OK || r.Entries < told {
			t.Fatalf("after %d rows: %+v %v", told, r, err)
		}
	}
}

func TestA09_NothingReadableInTheFiles(t *testing.T) {
	const canary = "s3cr3t-canary-of-the-log"
	in := newInstallation(t)
	cmd := in.command("canary")
	cmd.Env = append(cmd.Env, "CANARY="+canary)
	p := startCommand(t, cmd)
	p.line(t)
	look := func(names ...string) {
		t.Helper()
		for i, name := range names {
			data, err := os.ReadFile(filepath.Join(in.dir, name))
			if err != nil || len(data) == 0 {
				t.Fatalf("%s: %d bytes, %v", name, len(data), err)
			}
			for _, form := range []string{canary, canary[:12], "aW52b2ljZXM", "/v1/invoices", "http:billing", "op-kind"} {
				if bytes.Contains(data, []byte(form)) {
					t.Errorf("%s holds %q", name, form)
				}
			}
			if i == 0 && !bytes.Contains(data, []byte("CREATE TABLE")) {
				t.Errorf("%s is not what was meant", name)
			}
		}
	}
	look("ledger.db-wal", "ledger.db", "ledger.db-shm", "ledger.journal")
	p.stdin.Close()
	p.kill()
	l := in.open(t)
	found := 0
	for _, r := range allRows(t, l, in.opener(t)) {
		b, _ := json.Marshal(r)
		found += bytes.Count(b, []byte(canary))
	}
	if found == 0 {
		t.Fatal("the canary was never written")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	look("ledger.db")
}

// TestTreeAgreesWithTlog compares with the stored-hash algorithm of tlog.
func TestTreeAgreesWithTlog(t *testing.T) {
	var own tree
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var out []tlog.Hash
		for _, i := range indexes {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	for n := range int64(200) {
		want, err := tlog.TreeHash(n, reader)
		if err != nil {
			t.Fatal(err)
		}
		if own.root() != want || own.size != n {
			t.Fatalf("root of %d leaves", n)
		}
		data := fmt.Appendf(nil, "row %d", n)
		more, err := tlog.StoredHashes(n, data, reader)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, more...)
		own.add(tlog.RecordHash(data), nil)
	}
}

// TestStoredLeavesAreTheTree takes the tree from the leaf column, as the
// signer of heads will.
func TestStoredLeavesAreTheTree(t *testing.T) {
	in := filled(t)
	var own tree
	db := foreign(t, in)
	rows, err := db.Query("SELECT leaf FROM rows ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var leaf sql.RawBytes
		if err := rows.Scan(&leaf); err != nil {
			t.Fatal(err)
		}
		own.add(tlog.Hash(leaf), nil)
	}
	if r := mustVerify(t, in, nil); r.RootHash != own.root().String() {
		t.Fatalf("%s, the leaves say %s", r.RootHash, own.root())
	}
}

// FuzzDecodeRow: what opens but is not a row is an error, and a row comes
// back the same.
func FuzzDecodeRow(f *testing.F) {
	l := &Ledger{}
	seeds := [][]byte{[]byte(`{}`), []byte(`{"n":1}`), []byte(`{"at":"2026-01-02T03:04:05Z","kind":"x","verified":{"a":[1]}}`), []byte(`null`), []byte(`{"kind":1}`)}
	plain, err := l.encode(Row{At: fromNanos(1), Kind: "intent", Request: json.RawMessage(`{"p":"<>"}`)})
	if err != nil {
		f.Fatal(err)
	}
	one, two := &columns{id: "one"}, &columns{id: "two", digest: []byte("d")}
	plain = joinEffect(plain, []transition{{is: one, form: one.encode()}, {was: one, is: two, tellWas: true, form: two.encode()}}, []byte("e"), 3)
	if _, e, err := decode(7, plain); err != nil || len(e.Operations) != 2 {
		f.Fatalf("%s: %+v %v", plain, e, err)
	}
	if seeds = append(seeds, plain); len(seeds) < 6 {
		f.Fatal("the corpus is empty")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		r, e, err := decode(7, plain)
		if err != nil || r.At.IsZero() {
			return
		}
		again, err := l.encode(r)
		if err != nil {
			return // a year that no row can have
		}
		r2, e2, err := decode(7, joinEffect(again, nil, e.Table, e.Vault))
		if err != nil || !r2.At.Equal(r.At) || r2.Kind != r.Kind || r2.N != 7 || string(e2.Table) != string(e.Table) || e2.Vault != e.Vault {
			t.Fatalf("%+v %v became %+v %v: %v", r, e, r2, e2, err)
		}
	})
}

// TestBrokerStartsInTheMiddle lets a whole broker run while a quiet file is
// read without locks; what comes out is the state after it.
func TestBrokerStartsInTheMiddle(t *testing.T) {
	in := filled(t)
	before := mustVerify(t, in, nil).Entries
	ran := false
	r, err := Verify(t.Context(), in.dir, in.opener(t), func(int64, int64) {
		if !ran {
			ran = true
			mustRun(t, in.command("append"))
		}
	})
	if err != nil || !r.OK || r.Entries < before+500 {
		t.Fatalf("%+v %v", r, err)
	}
}
