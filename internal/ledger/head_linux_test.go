package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/yett-broker/yett/internal/action"
)

func newLogKey(t testing.TB) *LogKey {
	t.Helper()
	k, err := NewLogKey(bytes.Repeat([]byte{7}, 32))
	must(t, err)
	return k
}

// signedLedger has rows, an operation whose outcome is unknown, and a head over
// all of it but the rows of its end.
func signedLedger(t *testing.T, k *LogKey) (in installation, head []byte, unknown Operation) {
	t.Helper()
	in = newInstallation(t)
	l := in.open(t)
	unknown = newOperation()
	unknown.ID, unknown.Unsafe = "op-unknown", true
	bring(t, l, unknown, action.Indeterminate)
	for range 200 {
		l.AppendSoon(row("filled"))
	}
	must(t, l.w.flush(t.Context()))
	must(t, l.Drain())
	head, _, err := l.SignHead(k, 7)
	must(t, err)
	must(t, l.Close())
	return in, head, unknown
}

// unlockedWith opens a ledger as a start and an unlocking do.
func unlockedWith(t *testing.T, in installation, h HeadFor) (*Ledger, error) {
	t.Helper()
	l, err := Open(in.dir, Options{AuditPublicKey: in.public})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	if err := l.CheckHead(t.Context(), h); err != nil {
		return l, err
	}
	return l, l.CheckOperations(t.Context(), in.opener(t), h.Generation)
}

// TestHeadIsASignedNote: a library that is not ours opens the head.
func TestHeadIsASignedNote(t *testing.T) {
	k := newLogKey(t)
	in, head, _ := signedLedger(t, k)
	v, err := note.NewVerifier(strings.TrimSpace(string(readFile(t, filepath.Join(in.dir, KeyFile)))))
	must(t, err)
	n, err := note.Open(readFile(t, filepath.Join(in.dir, HeadFile)), note.VerifierList(v))
	must(t, err)
	var origin, root string
	var size int64
	if _, err := fmt.Sscan(n.Text, &origin, &size, &root); err != nil || origin != v.Name() || size != 202 {
		t.Fatalf("%q", n.Text)
	}
	r := mustVerify(t, in, in.opener(t))
	if r.RootHash != root || r.Entries != size {
		t.Fatalf("%+v, head %q", r, n.Text)
	}
	for i := range head {
		if i == len(head)-len("?=\n") { // two bits of it stand for nothing
			continue
		}
		for _, bit := range []byte{1, 0x20} {
			wrong := bytes.Clone(head)
			wrong[i] ^= bit
			if c, err := OpenCheckpoint(wrong, k.VerifierKey()); err == nil {
				t.Fatalf("byte %d changed: %+v", i, c)
			}
		}
	}
	if _, err := OpenCheckpoint(head, strings.Replace(k.VerifierKey(), "+", "x+", 1)); err == nil {
		t.Error("it opened under another name")
	}
}

// TestA03_WhatHeadsNotice changes what neither the rows nor the operations
// alone can show.
func TestA03_WhatHeadsNotice(t *testing.T) {
	k := newLogKey(t)
	in, head, _ := signedLedger(t, k)
	older := image(t, in) // as it was before what follows
	l, err := unlockedWith(t, in, HeadFor{k, head, 7})
	must(t, err)
	for range 100 {
		l.AppendSoon(row("later"))
	}
	must(t, l.w.flush(t.Context()))
	must(t, l.Drain())
	later, _, err := l.SignHead(k, 9)
	must(t, err)
	l.AppendSoon(row("which tells of the vault"))
	must(t, l.w.flush(t.Context()))
	must(t, l.Close())
	now := HeadFor{k, later, 9}
	from := func(in installation, names ...string) func(t *testing.T, at installation) {
		return func(t *testing.T, at installation) {
			for _, name := range names {
				writeFile(t, filepath.Join(at.dir, name), readFile(t, filepath.Join(in.dir, name)))
			}
		}
	}
	sqlite := func(statement string) func(t *testing.T, at installation) {
		return func(t *testing.T, at installation) {
			db := foreign(t, at)
			defer db.Close()
			_, err := db.Exec(statement)
			must(t, err)
		}
	}
	other, err := NewLogKey(bytes.Repeat([]byte{8}, 32))
	must(t, err)
	for _, test := range []struct {
		name   string
		head   HeadFor
		change func(t *testing.T, at installation)
		want   string
	}{
		{"nothing", now, nil, ""},
		{"a vault that is newer", HeadFor{k, later, 12}, nil, ""},
		{"the database and the journal, older", now, from(older, "ledger.db", journalName), "rows were cut off"},
		{"all files of the ledger, older", now, from(older, "ledger.db", journalName, HeadFile), "rows were cut off"},
		{"the tail cut, tables as they were", now, func(t *testing.T, at installation) {
			must(t, os.Remove(at.journal())) // it is not in use
			sqlite("DELETE FROM rows WHERE n>250; DELETE FROM nodes WHERE (i+1)<<level > 250")(t, at)
		}, "rows were cut off"},
		{"the vault, older", HeadFor{k, head, 7}, nil, "an older vault"},
		{"the head's file, gone", now, func(t *testing.T, at installation) { must(t, os.Remove(filepath.Join(at.dir, HeadFile))) }, "is missing"},
		{"the head's file, of another key", now, func(t *testing.T, at installation) {
			c, err := readCheckpoint(later)
			must(t, err)
			forged, err := other.seal(c)
			must(t, err)
			writeFile(t, filepath.Join(at.dir, HeadFile), forged)
		}, "not a signed head"},
		{"a row and its hash", now, sqlite("UPDATE rows SET sealed=zeroblob(60) WHERE n=3"), "row 3 does not match"},
		{"a row", now, func(t *testing.T, at installation) {
			var epoch int64
			db := foreign(t, at)
			defer db.Close()
			must(t, db.QueryRow("SELECT epoch FROM rows WHERE n=3").Scan(&epoch))
			leaf := leafHash(3, epoch, make([]byte, 60))
			_, err := db.Exec("UPDATE rows SET sealed=zeroblob(60), leaf=? WHERE n=3", leaf[:])
			must(t, err)
		}, "not those of the tree"},
		{"the vault and the head's file, older", HeadFor{k, head, 7}, func(t *testing.T, at installation) {
			writeFile(t, filepath.Join(at.dir, HeadFile), head)
		}, "an older vault"},
		{"a row behind a gap", now, sqlite(copyOfRow("max(n)+2")), "is missing"},
		{"a row far away", now, sqlite(copyOfRow("1000000000000")), "no row can have"},
		{"row 0", now, sqlite(copyOfRow("0")), "no row can have"},
		{"row -1", now, sqlite(copyOfRow("-1")), "no row can have"},
		{"one of the newest rows, gone", now, sqlite("DELETE FROM rows WHERE n=(SELECT max(n)-1 FROM rows)"), "is missing"},
		{"an old row, gone", now, sqlite("DELETE FROM rows WHERE n=3"), "row 3 is missing"},
		{"a node", now, sqlite("UPDATE nodes SET hash=zeroblob(32) WHERE level=6 AND i=0"), "not those"},
	} {
		at := image(t, in)
		if test.change != nil {
			test.change(t, at)
		}
		r, err := VerifyWithVault(t.Context(), at.dir, at.opener(t), test.head, nil)
		if ok := err == nil && r.OK && r.Vault <= test.head.Generation; ok != (test.want == "") {
			t.Errorf("%s: Verify: %+v, %v", test.name, r, err)
		}
		l, err := unlockedWith(t, at, test.head)
		if q := l.Quarantined(); test.want == "" {
			if err != nil || q != nil {
				t.Errorf("%s: %v, %v", test.name, err, q)
			}
			continue
		} else if q == nil || !strings.Contains(q.Error(), test.want) {
			t.Errorf("%s: quarantined: %v; %v", test.name, q, err)
		}
		if _, err := l.Begin(t.Context(), newOperation(), row("intent"), nil); !errors.Is(err, ErrTampered) && !errors.Is(err, ErrUnchecked) {
			t.Errorf("%s: an action: %v", test.name, err)
		}
		if h, _, err := l.SignHead(k, 12); err == nil {
			t.Errorf("%s: signed %s", test.name, h)
		}
		must(t, l.Close())
		if test.name == "a node" { // it is computed anew from the rows, which are right
			continue
		}
		l, _ = unlockedWith(t, at, test.head) // it stays so
		if l.Quarantined() == nil {
			t.Errorf("%s: the next start forgot it", test.name)
		}
	}
}

func copyOfRow(number string) string {
	return "INSERT INTO rows SELECT (SELECT " + number + " FROM rows), epoch, sealed, leaf FROM rows WHERE n=5"
}

// TestAnAcknowledgedChangeStaysAcknowledged: what a person has stated does not
// stop later starts, whatever it was.
func TestAnAcknowledgedChangeStaysAcknowledged(t *testing.T) {
	k := newLogKey(t)
	in, head, _ := signedLedger(t, k)
	for name, statement := range map[string]string{
		"a row behind a gap":           copyOfRow("max(n)+2"),
		"a row far away":               copyOfRow("1000000000000"),
		"row 0":                        copyOfRow("0"),
		"many rows far apart":          strings.Repeat(copyOfRow("max(n)+60000")+";", 40),
		"one of the newest rows, gone": "DELETE FROM rows WHERE n=(SELECT max(n)-1 FROM rows)",
		"an old row, gone":             "DELETE FROM rows WHERE n=3",
		"a row":                        "UPDATE rows SET sealed=zeroblob(60) WHERE n=3",
		"a leaf":                       "UPDATE rows SET leaf=zeroblob(32) WHERE n=3",
		"a short leaf":                 "UPDATE rows SET leaf=zeroblob(3) WHERE n=3",
		"a short leaf of the last":     "UPDATE rows SET leaf=zeroblob(3) WHERE n=(SELECT max(n) FROM rows)",
		"all nodes":                    "DELETE FROM nodes",
		"a node":                       "UPDATE nodes SET hash=zeroblob(32) WHERE level=6 AND i=0",
	} {
		at := image(t, in)
		db := foreign(t, at)
		_, err := db.Exec(statement)
		must(t, err)
		must(t, db.Close())
		l, err := unlockedWith(t, at, HeadFor{k, head, 7})
		if l.Quarantined() == nil {
			t.Errorf("%s: not noticed: %v", name, err)
		}
		kept, err := filepath.Glob(filepath.Join(at.dir, "ledger.rows.kept-*"))
		must(t, err)
		if strange := name == "row 0" || name == "many rows far apart" || name == "a row far away"; strange != (len(kept) == 1) {
			t.Errorf("%s: rows are kept in %q", name, kept)
		}
		_, err = l.Acknowledge(t.Context(), at.opener(t), row("acknowledged"))
		must(t, err)
		must(t, l.Drain())
		head, _, err := l.SignHead(k, 8)
		if err != nil {
			t.Errorf("%s: signing after the statement: %v", name, err)
		}
		must(t, l.Close())
		if l, err = unlockedWith(t, at, HeadFor{k, head, 8}); err != nil || l.Quarantined() != nil {
			t.Errorf("%s: the next start: %v, %v", name, err, l.Quarantined())
		}
		must(t, l.Close())
	}
}

// TestAcknowledgedOperationsComeBack: after a person's statement the ledger
// acts again, and decides by what the rows tell.
func TestAcknowledgedOperationsComeBack(t *testing.T) {
	k := newLogKey(t)
	in, head, unknown := signedLedger(t, k)
	for statement, beside := range map[string]bool{
		"DELETE FROM operations WHERE id='op-unknown'":                             false,
		"UPDATE operations SET unsafe=0 WHERE id='op-unknown'":                     false,
		"UPDATE operations SET state='completed' WHERE id='op-unknown'":            true,
		copyOf("op-unknown", "op-new"):                                             true,
		"INSERT INTO finished SELECT * FROM operations; DELETE FROM operations":    false,
		"DELETE FROM rows WHERE n>150; DELETE FROM nodes WHERE (i+1)<<level > 150": false,
		"UPDATE journal SET problem='said by somebody'":                            false,
	} {
		at := image(t, in)
		change := func() {
			db := foreign(t, at)
			defer db.Close()
			_, err := db.Exec(statement)
			must(t, err)
		}
		if !beside {
			change()
		}
		l, _ := unlockedWith(t, at, HeadFor{k, head, 7})
		running := newOperation()
		if beside {
			mustBegin(t, l, running)
			must(t, l.Drain())
			change()
		}
		if l.Healthy(); l.Quarantined() == nil {
			t.Fatalf("%s: not quarantined", statement)
		}
		if _, err := l.Begin(t.Context(), newOperation(), row("intent"), nil); !errors.Is(err, ErrTampered) {
			t.Fatalf("%s: an action: %v", statement, err)
		}
		n, err := l.Acknowledge(t.Context(), at.opener(t), row("ledger.acknowledged"))
		must(t, err)
		if entries, _ := l.Entries(); entries != n || l.Healthy() != nil {
			t.Fatalf("%s: row %d of %d, %v", statement, n, entries, l.Healthy())
		}
		again := newOperation()
		again.Unsafe, again.Digest = true, unknown.Digest
		var held ErrUnresolved
		if _, err := l.Begin(t.Context(), again, row("intent"), nil); !errors.As(err, &held) {
			t.Errorf("%s: the equal action: %v", statement, err)
		}
		if _, ok, err := l.Operation("op-new"); ok || err != nil {
			t.Errorf("%s: what was added: %v %v", statement, ok, err)
		}
		if beside {
			must(t, <-l.End(running.ID, action.Completed, "", row("outcome")))
		}
		mustBegin(t, l, newOperation())
		must(t, l.Drain())
		later, _, err := l.SignHead(k, 8)
		must(t, err)
		if _, err := l.Acknowledge(t.Context(), at.opener(t), row("x")); !errors.Is(err, ErrNotQuarantined) {
			t.Errorf("%s: twice: %v", statement, err)
		}
		must(t, l.Close())
		if r := mustVerify(t, at, at.opener(t)); !r.OK {
			t.Errorf("%s: %v", statement, r.Problems)
		}
		if l, err = unlockedWith(t, at, HeadFor{k, later, 8}); err != nil || l.Quarantined() != nil {
			t.Errorf("%s: the next start: %v", statement, err)
		}
		must(t, l.Close())
	}
}

// TestOldRowsAreCheckedSlowly: a row that no start looks at is found after the
// first unlocking, and stays found.
func TestOldRowsAreCheckedSlowly(t *testing.T) {
	k := newLogKey(t)
	in := newInstallation(t)
	l := in.open(t)
	fill(t, l, checkedAtStart, nil)
	settleDown(t, l)
	head, _, err := l.SignHead(k, 1)
	must(t, err)
	must(t, l.Close())
	db := foreign(t, in)
	_, err = db.Exec("UPDATE rows SET sealed=zeroblob(60) WHERE n=130")
	must(t, err)
	db.Close()
	l, err = unlockedWith(t, in, HeadFor{k, head, 1})
	must(t, err)
	l.w.beside.Wait()
	if q := l.Quarantined(); q == nil || !strings.Contains(q.Error(), "row 130") {
		t.Fatalf("quarantined: %v", q)
	}
	must(t, l.Close())
	l, err = Open(in.dir, Options{AuditPublicKey: in.public})
	must(t, err)
	defer l.Close()
	if l.Quarantined() == nil {
		t.Error("the next start forgot it")
	}
}

// TestProofsAreCheckedByOthers: proofs over the stored nodes convince tlog.
func TestProofsAreCheckedByOthers(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	fill(t, l, 300, nil)
	settleDown(t, l)
	size, root := l.w.drain.root()
	r := nodeReader{t.Context(), l.readDB}
	for _, n := range []int64{0, 1, 63, 64, 130, 511, 512, size - 1} {
		p, err := tlog.ProveRecord(size, n, r)
		must(t, err)
		leaf, err := r.hash(0, n)
		must(t, err)
		must(t, tlog.CheckRecord(p, size, root, n, leaf))
	}
	for _, n := range []int64{1, 64, 100, 512, size} {
		old, err := readTree(t.Context(), l.readDB, n)
		must(t, err)
		p, err := tlog.ProveTree(size, n, r)
		must(t, err)
		must(t, tlog.CheckTree(p, size, root, n, old.root()))
	}
}

// TestA03_LastRowsInTheDatabase flips bytes of the last three rows, and of
// their hashes, in the database: the next start, still locked, notices each.
func TestA03_LastRowsInTheDatabase(t *testing.T) {
	in, _, _ := signedLedger(t, newLogKey(t))
	type place struct {
		n, at  int64
		column string
	}
	var places []place
	db := foreign(t, in)
	rows, err := db.Query("SELECT n, length(sealed) FROM rows ORDER BY n DESC LIMIT 3")
	must(t, err)
	for rows.Next() {
		var n, length int64
		must(t, rows.Scan(&n, &length))
		for at := n % 3; at < length; at += int64(5*apart() - 4) {
			places = append(places, place{n, at, "sealed"})
		}
		places = append(places, place{n, 0, "leaf"}, place{n, 31, "leaf"}, place{n, length - 1, "sealed"})
	}
	must(t, rows.Err())
	must(t, db.Close())
	if len(places) < 20 {
		t.Fatalf("%d places", len(places))
	}
	for _, p := range places {
		tamper(t, in, func() {
			l, err := Open(in.dir, Options{AuditPublicKey: in.public})
			must(t, err)
			defer l.Close()
			if l.Quarantined() == nil {
				t.Errorf("byte %d of %s of row %d", p.at, p.column, p.n)
			}
		}, fmt.Sprintf("UPDATE rows SET %[1]s=CAST(substr(%[1]s,1,%[2]d) || CASE WHEN substr(%[1]s,%[2]d+1,1)=x'00' THEN x'01' ELSE x'00' END || substr(%[1]s,%[2]d+2) AS BLOB) WHERE n=%[3]d", p.column, p.at, p.n))
	}
}
