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

	"github.com/yett-broker/yett/internal/action"
	"golang.org/x/mod/sumdb/tlog"
)

// filled is a closed ledger with an operation in every state, a repetition
// and a resolution; some of it was written in a second run.
func filled(t *testing.T) installation {
	t.Helper()
	in := newInstallation(t)
	l := in.open(t)
	if _, err := l.Append(t.Context(), row("session")); err != nil {
		t.Fatal(err)
	}
	ops := map[action.State]Operation{}
	for _, s := range []action.State{action.Completed, action.Denied, action.Indeterminate} {
		op := newOperation()
		op.ID, op.Unsafe = "op-"+string(s), true
		op.Idempotency, op.BudgetKey = []byte("key of "+op.ID), []byte("budget")
		bring(t, l, op, s)
		ops[s] = op
	}
	repeat := newOperation()
	repeat.ID, repeat.Unsafe, repeat.Digest, repeat.Repeat = "op-repeat", true, ops[action.Indeterminate].Digest, true
	bring(t, l, repeat, action.Indeterminate)
	if err := l.Resolve(t.Context(), repeat.ID, row("resolved")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = in.open(t)
	queued, executing := newOperation(), newOperation()
	queued.ID, executing.ID = "op-queued", "op-executing"
	executing.Unsafe = true
	bring(t, l, queued, action.Queued)
	bring(t, l, executing, action.Executing)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Fatal(r.Problems)
	}
	return in
}

// tamper changes the closed file as anyone with the account's rights can, runs
// check, and puts the file back.
func tamper(t *testing.T, in installation, check func(), statement string, args ...any) {
	t.Helper()
	path := filepath.Join(in.dir, "ledger.db")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db := foreign(t, in)
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	check()
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestA03_EveryByteOfARowCounts flips each byte of the last row.
func TestA03_EveryByteOfARowCounts(t *testing.T) {
	in := filled(t)
	o := in.opener(t)
	good := mustVerify(t, in, o)
	n := good.Entries
	sealed, leaf := stored(t, in, n)
	for i := range sealed {
		tamper(t, in, func() {
			for _, o := range []*Opener{nil, o} {
				if r := mustVerify(t, in, o); r.OK || r.RootHash == good.RootHash {
					t.Fatalf("byte %d of row %d: %+v", i, n, r)
				}
			}
		}, "UPDATE rows SET sealed=? WHERE n=?", flipped(sealed, i), n)
	}
	for i := range leaf {
		tamper(t, in, func() {
			if r := mustVerify(t, in, nil); r.OK {
				t.Fatalf("byte %d of leaf %d", i, n)
			}
		}, "UPDATE rows SET leaf=? WHERE n=?", flipped(leaf, i), n)
	}
	// With a leaf that matches again, the root has changed, and the row
	// does not open.
	forged := flipped(sealed, len(sealed)-1)
	hash := leafHash(n, epochOf(t, in, n), forged)
	tamper(t, in, func() {
		if r := mustVerify(t, in, nil); r.RootHash == good.RootHash {
			t.Fatal("a forged leaf has the old root")
		}
		if r := mustVerify(t, in, o); r.OK {
			t.Fatal("a forged row opened")
		}
	}, "UPDATE rows SET sealed=?, leaf=? WHERE n=?", forged, hash[:], n)
}

func flipped(b []byte, i int) []byte {
	c := bytes.Clone(b)
	c[i] ^= 0x40
	return c
}

func stored(t *testing.T, in installation, n int64) (sealed, leaf []byte) {
	t.Helper()
	db := foreign(t, in)
	defer db.Close()
	if err := db.QueryRow("SELECT sealed, leaf FROM rows WHERE n=?", n).Scan(&sealed, &leaf); err != nil {
		t.Fatal(err)
	}
	return sealed, leaf
}

func epochOf(t *testing.T, in installation, n int64) (id int64) {
	t.Helper()
	db := foreign(t, in)
	defer db.Close()
	if err := db.QueryRow("SELECT epoch FROM rows WHERE n=?", n).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestA03_TamperingIsReported changes every plain column of every table.
func TestA03_TamperingIsReported(t *testing.T) {
	in := filled(t)
	structure := []string{ // noticed without any key
		"DELETE FROM rows WHERE n=3",
		"DELETE FROM rows WHERE n=1",
		"DELETE FROM rows",
		"DELETE FROM rows WHERE n > (SELECT max(n)-2 FROM rows)", // operations name them
		"UPDATE rows SET n=n+1 WHERE n=(SELECT max(n) FROM rows)",
		"UPDATE rows SET n=0 WHERE n=1",
		"UPDATE rows SET n=-5 WHERE n=1",
		"UPDATE rows SET epoch=2 WHERE n=2",
		"UPDATE rows SET epoch=9 WHERE n=(SELECT max(n) FROM rows)",
		"INSERT INTO rows SELECT n+1, epoch, sealed, leaf FROM rows ORDER BY n DESC LIMIT 1",
		"DELETE FROM epochs",
		"DELETE FROM epochs WHERE id=1",
		"INSERT INTO epochs SELECT 9, recipient, enc, sealed FROM epochs WHERE id=1",
		"UPDATE operations SET intent=0 WHERE id='op-completed'",
		"UPDATE operations SET intent=99, last_row=100 WHERE id='op-completed'",
		"UPDATE operations SET last_row=99 WHERE id='op-completed'",
		"UPDATE operations SET state='queued' WHERE id='op-completed'",
		"UPDATE operations SET state='executing' WHERE id='op-completed'",
		"UPDATE operations SET state='cancelled' WHERE id='op-completed'",
		"UPDATE operations SET resolved=1 WHERE id='op-completed'",
		"UPDATE operations SET resolved=99 WHERE id='op-indeterminate'",
		"UPDATE operations SET began=0 WHERE id='op-completed'",
		"UPDATE operations SET began=1 WHERE id='op-queued'",
		"DROP INDEX operations_open",
		"CREATE TRIGGER t AFTER INSERT ON operations BEGIN DELETE FROM operations WHERE id=new.id; END",
		"CREATE TABLE extra(a)",
	}
	sealed := []string{ // noticed with the audit key
		"UPDATE operations SET state='completed' WHERE id='op-indeterminate'",
		"UPDATE operations SET state='indeterminate' WHERE id='op-completed'",
		"UPDATE operations SET state='denied' WHERE id='op-completed'",
		"UPDATE operations SET state='denied' WHERE id='op-queued'",
		"UPDATE operations SET state='completed', resolved=0 WHERE id='op-repeat'",
		"UPDATE operations SET resolved=0 WHERE id='op-repeat'",
		"UPDATE operations SET resolved=last_row WHERE id='op-indeterminate'",
		"UPDATE operations SET resolved=1 WHERE id='op-indeterminate'",
		"UPDATE operations SET last_row=last_row-1 WHERE id='op-repeat'",
		"UPDATE operations SET intent=intent-1 WHERE id='op-completed'",
		"UPDATE operations SET id='op-other' WHERE id='op-completed'",
		"DELETE FROM operations WHERE id='op-completed'",
		"DELETE FROM operations",
		"INSERT INTO operations SELECT 'op-new', state, code, session, caller, digest, NULL, unsafe, intent, last_row, resolved, budget_key, began, at FROM operations WHERE id='op-completed'",
		"UPDATE epochs SET sealed=zeroblob(48) WHERE id=1",
		"UPDATE epochs SET enc=zeroblob(32) WHERE id=1",
		"UPDATE epochs SET recipient=zeroblob(16) WHERE id=1",
		"UPDATE epochs SET id=id+10; UPDATE epochs SET id=13-id",
	}
	for i, statement := range append(structure, sealed...) {
		tamper(t, in, func() {
			openers := []*Opener{in.opener(t)}
			if i < len(structure) {
				openers = append(openers, nil)
			}
			for _, o := range openers {
				if r := mustVerify(t, in, o); r.OK || len(r.Problems) == 0 {
					t.Errorf("%s: with key %v: %+v", statement, o != nil, r)
				}
			}
		}, statement)
	}
	if r := mustVerify(t, in, newInstallation(t).opener(t)); r.OK {
		t.Error("every row opened with a stranger's key")
	}
}

// TestDamagedPagesAreReported overwrites each page of the file in turn.
func TestDamagedPagesAreReported(t *testing.T) {
	in := filled(t)
	path := filepath.Join(in.dir, "ledger.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for page := range len(whole) / 4096 {
		damaged := bytes.Clone(whole)
		clear(damaged[page*4096+100 : (page+1)*4096])
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(t.Context(), in.dir, in.opener(t), nil); err == nil && r.OK {
			t.Errorf("page %d of %d: %+v", page+1, len(whole)/4096, r)
		}
	}
	for _, size := range []int{0, 50, 4096, len(whole) - 4096} {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(t.Context(), in.dir, nil, nil); err == nil && r.OK {
			t.Errorf("cut to %d bytes: %+v", size, r)
		}
	}
}

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
		"PRAGMA user_version=2", "PRAGMA user_version=0", "PRAGMA application_id=7",
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
	look("ledger.db-wal", "ledger.db", "ledger.db-shm")
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
		own.add(tlog.RecordHash(data))
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
		own.add(tlog.Hash(leaf))
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
	plain, err := l.encode(Row{At: fromNanos(1), Kind: "intent", Request: json.RawMessage(`{"p":"<>"}`)}, action.Executing)
	if err != nil {
		f.Fatal(err)
	}
	if seeds = append(seeds, plain); len(seeds) < 6 {
		f.Fatal("the corpus is empty")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		r, s, err := decode(7, plain)
		if err != nil || r.At.IsZero() {
			return
		}
		again, err := l.encode(r, s)
		if err != nil {
			return // a year that no row can have
		}
		r2, s2, err := decode(7, again)
		if err != nil || s2 != s || !r2.At.Equal(r.At) || r2.Kind != r.Kind || r2.N != 7 {
			t.Fatalf("%+v %v became %+v %v: %v", r, s, r2, s2, err)
		}
	})
}

// TestA01_MissingIntentIsNamed: the report says which operation lost its
// intent, beside the gap that it leaves.
func TestA01_MissingIntentIsNamed(t *testing.T) {
	in := filled(t)
	tamper(t, in, func() {
		r := mustVerify(t, in, nil)
		if !strings.Contains(strings.Join(r.Problems, "\n"), "operation op-completed: its intent, row 2, is missing") {
			t.Fatalf("%q", r.Problems)
		}
	}, "DELETE FROM rows WHERE n=2")
}

// TestEpochsComeInOrder: a row of a later run among earlier ones, with a leaf
// that matches.
func TestEpochsComeInOrder(t *testing.T) {
	in := filled(t)
	sealed, _ := stored(t, in, 2)
	leaf := leafHash(2, 2, sealed)
	tamper(t, in, func() {
		if r := mustVerify(t, in, nil); r.OK {
			t.Fatalf("%+v", r)
		}
	}, "UPDATE rows SET epoch=2, leaf=? WHERE n=2", leaf[:])
}

// TestRowsAreBoundToTheirPlace moves a sealed row, with a leaf that matches.
func TestRowsAreBoundToTheirPlace(t *testing.T) {
	in := filled(t)
	o := in.opener(t)
	n := mustVerify(t, in, o).Entries
	other, _ := stored(t, in, n-1)
	if epochOf(t, in, n) != epochOf(t, in, n-1) {
		t.Fatal("the rows are of two epochs")
	}
	leaf := leafHash(n, epochOf(t, in, n), other)
	tamper(t, in, func() {
		if r := mustVerify(t, in, o); r.OK || !strings.Contains(r.Problems[0], "does not open") {
			t.Fatalf("%+v", r)
		}
	}, "UPDATE rows SET sealed=?, leaf=? WHERE n=?", other, leaf[:], n)
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
