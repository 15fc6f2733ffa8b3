package ledger

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
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
	restore := preserve(t, in)
	db := foreign(t, in)
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	check()
	restore()
}

// preserve returns what puts the closed ledger back as it is now.
func preserve(t testing.TB, in installation) (restore func()) {
	t.Helper()
	before := map[string][]byte{}
	for _, e := range entriesOf(t, in) {
		data, err := os.ReadFile(filepath.Join(in.dir, e))
		if err != nil {
			t.Fatal(err)
		}
		before[e] = data
	}
	return func() {
		t.Helper()
		for _, e := range entriesOf(t, in) {
			if _, ok := before[e]; !ok {
				if err := os.Remove(filepath.Join(in.dir, e)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name, data := range before {
			if now, err := os.ReadFile(filepath.Join(in.dir, name)); err == nil && bytes.Equal(now, data) {
				continue
			}
			if err := os.WriteFile(filepath.Join(in.dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func entriesOf(t testing.TB, in installation) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(in.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// apart is how far the bytes lie apart that are flipped one at a time:
// YETT_CRASH wants each.
func apart() int {
	if os.Getenv("YETT_CRASH") != "" {
		return 1
	}
	return 7
}

// TestA03_EveryByteOfARowCounts flips bytes of the last row, one at a time.
func TestA03_EveryByteOfARowCounts(t *testing.T) {
	in := filled(t)
	o := in.opener(t)
	good := mustVerify(t, in, o)
	n := good.Entries
	sealed, leaf := stored(t, in, n)
	for i := 0; i < len(sealed); i += apart() {
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
		"INSERT INTO epochs SELECT 9, recipient, enc, sealed, confirmed FROM epochs WHERE id=1",
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
		if bytes.Equal(damaged, whole) { // an empty table
			continue
		}
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
		if r := mustVerify(t, in, o); r.OK || !strings.Contains(strings.Join(r.Problems, "\n"), "does not open") {
			t.Fatalf("%+v", r)
		}
	}, "UPDATE rows SET sealed=?, leaf=? WHERE n=?", other, leaf[:], n)
}
