package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

// image is what a power cut now would leave of a ledger whose database is
// held: all its files, in another directory.
func image(t testing.TB, in installation) installation {
	t.Helper()
	cut := in
	cut.dir = filepath.Join(t.TempDir(), "cut")
	if err := os.Mkdir(cut.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range entriesOf(t, in) {
		data, err := os.ReadFile(filepath.Join(in.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(cut.dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return cut
}

// undrainedLedger is a broker that died with its newest rows in the journal
// alone: three actions, of which one was executing, and one that waited.
func undrainedLedger(t testing.TB) installation {
	t.Helper()
	in := newInstallation(t)
	smallSegments(t, in, 4*minSegment)
	l := in.open(t)
	first := newOperation()
	first.ID = "op-first"
	mustBegin(t, l, first)
	mustEnd(t, l, first.ID, action.Completed)
	follow(t, l)
	release := holdDatabase(t, in)
	defer release()
	if err := leaveOpen(l); err != nil { // queued, executing
		t.Fatal(err)
	}
	second := newOperation()
	second.ID = "op-second"
	mustBegin(t, l, second)
	mustEnd(t, l, second.ID, action.Completed)
	return image(t, in)
}

func (i installation) journal() string { return filepath.Join(i.dir, journalName) }

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRowsInTheJournalAloneCount: verified as they lie, replayed by the next
// start, and recovered from like any others.
func TestRowsInTheJournalAloneCount(t *testing.T) {
	in := undrainedLedger(t)
	for _, o := range []*Opener{nil, in.opener(t)} {
		if r := mustVerify(t, in, o); !r.OK || r.Entries != 6 {
			t.Fatalf("as it lies: %+v", r)
		}
	}
	root := mustVerify(t, in, nil).RootHash
	again := image(t, in)
	l := in.open(t)
	if i, d := l.Recovered(); i != 1 || d != 1 {
		t.Fatalf("recovered %d and %d", i, d)
	}
	for id, want := range map[string]action.State{"op-first": action.Completed, "op-second": action.Completed,
		"executing": action.Indeterminate, "queued": action.Denied} {
		if op, ok, err := l.Operation(id); !ok || err != nil || op.State != want {
			t.Errorf("%s: %+v %v", id, op, err)
		}
	}
	if rows := allRows(t, l, in.opener(t)); len(rows) != 8 {
		t.Fatalf("%d rows", len(rows))
	}
	l.Close()
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != 8 {
		t.Fatal(r.Problems)
	}
	// A run that is never unlocked replays too, and hides nothing.
	again.openLocked(t).Close()
	if r := mustVerify(t, again, again.opener(t)); !r.OK || r.Entries != 8 {
		t.Fatal(r.Problems)
	}
	if r := mustVerify(t, image(t, again), nil); r.RootHash == root {
		t.Fatal("recovery wrote nothing")
	}
}

// TestVerifySeesEveryRow while the database is held, beside a broker.
func TestVerifySeesEveryRow(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	release := holdDatabase(t, in)
	defer release()
	for n := int64(1); n <= 20; n++ {
		if _, err := l.Append(t.Context(), row("one")); err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, image(t, in), in.opener(t)); !r.OK || r.Entries != n {
			t.Fatalf("after row %d: %+v", n, r)
		}
	}
}

// spoiled is a change of a dead ledger's files.
type spoiled struct {
	change func(t *testing.T, in installation)
	torn   bool // it reads as the end of a broker that died writing
	want   string
}

func spoiledJournals(t *testing.T) map[string]spoiled {
	stranger, older := undrainedLedger(t), undrainedLedger(t)
	older.openLocked(t).Close() // drained, closed
	return map[string]spoiled{
		"missing": {want: "it is missing", change: func(t *testing.T, in installation) { must(t, os.Remove(in.journal())) }},
		"empty":   {change: func(t *testing.T, in installation) { writeFile(t, in.journal(), nil) }},
		"zeros":   {change: func(t *testing.T, in installation) { writeFile(t, in.journal(), make([]byte, 4096+8*minSegment)) }},
		"text":    {want: "it is no journal", change: func(t *testing.T, in installation) { writeFile(t, in.journal(), []byte("my letters")) }},
		"another database's": {want: "belongs to another database", change: func(t *testing.T, in installation) {
			writeFile(t, in.journal(), readFile(t, stranger.journal()))
		}},
		"cut by a byte": {want: "bytes and not", change: func(t *testing.T, in installation) {
			whole := readFile(t, in.journal())
			writeFile(t, in.journal(), whole[:len(whole)-1])
		}},
		"longer by a byte": {change: func(t *testing.T, in installation) {
			writeFile(t, in.journal(), append(readFile(t, in.journal()), 0))
		}},
		"a byte in the middle": {want: "a whole group follows", change: func(t *testing.T, in installation) {
			whole := readFile(t, in.journal())
			whole[groupsOf(t, whole)[2].at+100] ^= 1
			writeFile(t, in.journal(), whole)
		}},
		"rows of the database cut off": {want: "it was cut", change: func(t *testing.T, in installation) {
			whole := readFile(t, in.journal())
			clear(whole[groupsOf(t, whole)[1].at:])
			writeFile(t, in.journal(), whole)
		}},
		"a row of its own": {change: func(t *testing.T, in installation) {
			whole := readFile(t, in.journal())
			c, groups := mustParse(t, whole), groupsOf(t, whole)
			end := groups[len(groups)-1].end
			is := columns{id: "op-second", state: "executing", intent: 7, lastRow: 7, began: 1, digest: []byte("x")}
			forged := []loggedRow{{sealedRow{7, 1, make([]byte, 60)}, []transition{{is: &is, form: is.encode()}}}}
			copy(whole[end:], c.appendGroup(nil, c.generation, end, forged))
			writeFile(t, in.journal(), whole)
		}},
		"an older database": {change: func(t *testing.T, in installation) {
			for _, name := range []string{"ledger.db-wal", "ledger.db-shm"} {
				must(t, os.Remove(filepath.Join(in.dir, name)))
			}
		}},
		"an older journal": {want: "has seen generation", change: func(t *testing.T, in installation) {
			l := in.open(t)
			mustBegin(t, l, newOperation())
			before := readFile(t, in.journal())
			for range 60 { // through both segments
				mustBegin(t, l, newOperation())
			}
			follow(t, l)
			cut := image(t, in) // it did not end
			must(t, l.Close())
			for _, name := range entriesOf(t, cut) {
				writeFile(t, filepath.Join(in.dir, name), readFile(t, filepath.Join(cut.dir, name)))
			}
			writeFile(t, in.journal(), before)
		}},
		"the database of an earlier end": {want: "an older ledger.db was put in its place", change: func(t *testing.T, in installation) {
			must(t, in.open(t).Close())
			before := readFile(t, filepath.Join(in.dir, "ledger.db"))
			l := in.open(t)
			for range 3 {
				mustBegin(t, l, newOperation())
			}
			must(t, l.Close())
			writeFile(t, filepath.Join(in.dir, "ledger.db"), before)
		}},
		"another row in the place of one": {want: "is not row 2 of ledger.db", change: func(t *testing.T, in installation) {
			whole := readFile(t, in.journal())
			c, g := mustParse(t, whole), groupsOf(t, whole)[1] // row 2, which the database has
			other := []loggedRow{{sealedRow{2, 1, bytes.Repeat([]byte{1}, len(c.rows[1].sealed))}, c.rows[1].changes}}
			copy(whole[g.at:], c.appendGroup(nil, c.generation, g.at, other))
			writeFile(t, in.journal(), whole)
		}},
		"a byte of the newest group": {torn: true, change: func(t *testing.T, in installation) {
			whole := readFile(t, in.journal())
			groups := groupsOf(t, whole)
			whole[groups[len(groups)-1].at+100] ^= 1
			writeFile(t, in.journal(), whole)
		}},
		"half of the newest group": {torn: true, change: func(t *testing.T, in installation) {
			whole := readFile(t, in.journal())
			groups := groupsOf(t, whole)
			clear(whole[groups[len(groups)-1].at+512:])
			writeFile(t, in.journal(), whole)
		}},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustParse(t testing.TB, whole []byte) *journalContent {
	t.Helper()
	c, err := parseJournal(whole)
	must(t, err)
	return c
}

// span is where a group lies.
type span struct{ at, end int64 }

func groupsOf(t testing.TB, whole []byte) (list []span) {
	t.Helper()
	c := mustParse(t, whole)
	at := c.start(c.newest) + sector
	for {
		_, length, ok := c.parseGroup(whole[at:], c.generation, at)
		if !ok {
			return list
		}
		list = append(list, span{at, at + length})
		at += length
	}
}

// TestSpoiledJournal: nothing begins on what no broker can have left, at this
// start and at later ones, and nothing of it is destroyed. What a broker that
// died can have left is told, and work goes on.
func TestSpoiledJournal(t *testing.T) {
	for name, c := range spoiledJournals(t) {
		t.Run(name, func(t *testing.T) {
			in := undrainedLedger(t)
			c.change(t, in)
			before := map[string][]byte{}
			for _, n := range entriesOf(t, in) {
				before[n] = readFile(t, filepath.Join(in.dir, n))
			}
			r, err := Verify(t.Context(), in.dir, in.opener(t), nil)
			if err == nil && r.OK {
				t.Errorf("verified: %+v", r)
			}
			if c.want != "" && !strings.Contains(strings.Join(r.Problems, "\n"), c.want) {
				t.Errorf("problems %q", r.Problems)
			}
			if c.torn {
				goesOnAfterTear(t, in, before[journalName])
				return
			}
			for range 2 {
				l := in.openLocked(t)
				if err := l.CheckOperations(t.Context(), in.opener(t), 0); !errors.Is(err, ErrTampered) {
					t.Fatalf("checked: %v", err)
				}
				refusesAll(t, l)
				must(t, l.Close())
				if r := mustVerify(t, in, in.opener(t)); r.OK {
					t.Fatal("verified after a start")
				}
			}
			keepsEvidence(t, in, name, before)
		})
	}
}

func goesOnAfterTear(t *testing.T, in installation, torn []byte) {
	l := in.open(t)
	mustBegin(t, l, newOperation())
	told := 0
	for _, r := range allRows(t, l, in.opener(t)) {
		if r.Kind == "journal_torn" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	kept, _ := filepath.Glob(in.journal() + ".torn-*")
	if len(kept) != 1 || !bytes.Contains(torn, readFile(t, kept[0])) || len(readFile(t, kept[0])) < 100 {
		t.Errorf("kept %v", kept)
	}
	must(t, l.Close())
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Error(r.Problems)
	}
	in.open(t) // it is not told again
}

// keepsEvidence: whatever was in the journal is in the database or in a file.
func keepsEvidence(t *testing.T, in installation, name string, before map[string][]byte) {
	kept, _ := filepath.Glob(in.journal() + ".*")
	switch name {
	case "the database of an earlier end": // what it lacks may be in the journal
		return
	case "missing", "empty", "zeros", "a row of its own", "rows of the database cut off":
		return // nothing is there, or it is in the database, where it is looked at
	}
	if len(kept) == 0 {
		t.Error("nothing was kept")
	}
	for _, k := range kept {
		if data := readFile(t, k); len(data) == 0 || !bytes.Contains(before[journalName], data) {
			t.Errorf("%s is not of the journal", filepath.Base(k))
		}
	}
}

// TestEveryByteOfTheJournalCounts changes and cuts at each byte of the last
// three groups, whose rows are not in the database, or are.
func TestEveryByteOfTheJournalCounts(t *testing.T) {
	in := undrainedLedger(t)
	whole := readFile(t, in.journal())
	groups := groupsOf(t, whole)
	last := groups[len(groups)-3:]
	state := journalState{identity: mustParse(t, whole).identity, generation: 1, resume: 1, inUse: true}
	noticed := func(b []byte, head int64) bool {
		c, err := parseJournal(b)
		if err != nil {
			return true
		}
		r := plan(state, head, c, "")
		return r.problem != "" || c.torn != nil
	}
	for head := int64(2); head <= 6; head += 4 {
		if noticed(whole, head) {
			t.Fatal("the whole one is spoiled")
		}
		for _, g := range last {
			for at := g.at; at < g.end; at++ {
				whole[at] ^= 0x40
				if !noticed(whole, head) {
					t.Fatalf("head %d: a change at byte %d of a group at %d was not noticed", head, at-g.at, g.at)
				}
				whole[at] ^= 0x40
				if at > last[0].at && !noticed(whole[:at], head) {
					t.Fatalf("head %d: a cut at byte %d", head, at)
				}
			}
		}
	}
	// The end itself: nothing may stand there.
	end := groups[len(groups)-1].end
	for at := end; at < end+sector; at++ {
		whole[at] ^= 0x40
		if !noticed(whole, 2) {
			t.Fatalf("byte %d after the end", at-end)
		}
		whole[at] ^= 0x40
	}
	// And the heads.
	for at := range int64(fileHeader + sector) {
		whole[at] ^= 0x40
		if !noticed(whole, 2) {
			t.Fatalf("byte %d of the heads", at)
		}
		whole[at] ^= 0x40
	}
}

// smallSegments gives a closed ledger a journal with small segments, so that
// they change every few rows.
func smallSegments(t testing.TB, in installation, size int64) {
	t.Helper()
	in.openLocked(t).Close()
	c := mustParse(t, readFile(t, in.journal()))
	must(t, os.Remove(in.journal()))
	f, err := os.OpenFile(in.journal(), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	must(t, makeJournal(f, layout{c.identity, size}))
	must(t, f.Close())
}

// TestSegmentsChange many times; a power cut after any row leaves all before
// it.
func TestSegmentsChange(t *testing.T) {
	in := newInstallation(t)
	smallSegments(t, in, minSegment)
	l := in.open(t)
	o := in.opener(t)
	for i := range 60 {
		op := newOperation()
		n := mustBegin(t, l, op)
		if i%3 == 0 {
			l.w.drain.mu.Lock() // no transaction while the files are copied
			cut := image(t, in)
			l.w.drain.mu.Unlock()
			if r := mustVerify(t, cut, o); !r.OK || r.Entries < n {
				t.Fatalf("row %d: %+v", n, r)
			}
			next := cut.open(t)
			if got, ok, err := next.Operation(op.ID); !ok || err != nil || got.State != action.Indeterminate {
				t.Fatalf("row %d: %+v %v", n, got, err)
			}
			must(t, next.Close())
			if r := mustVerify(t, cut, o); !r.OK {
				t.Fatalf("row %d: %v", n, r.Problems)
			}
		}
		l.End(op.ID, action.Completed, "", row("outcome"))
	}
	if l.w.generation.Load() < 5 {
		t.Fatalf("generation %d", l.w.generation.Load())
	}
	must(t, l.Close())
	if r := mustVerify(t, in, o); !r.OK {
		t.Fatal(r.Problems)
	}
}

// TestFullJournalWaitsForTheDatabase, and says why if that cannot be written.
func TestFullJournalWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	smallSegments(t, in, minSegment)
	l := in.open(t)
	release := holdDatabase(t, in)
	var err error
	rows := int64(0)
	for ; err == nil; rows++ {
		if rows > 100 {
			t.Fatal("the journal is never full")
		}
		_, err = l.Append(t.Context(), row("filler"))
	}
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "another program holds a lock") {
		t.Fatalf("got %v", err)
	}
	release()
	must(t, l.Probe(t.Context()))
	mustBegin(t, l, newOperation())
	if n, _ := l.Entries(); n != rows { // the one that failed left no gap
		t.Fatalf("%d entries after %d rows and an intent", n, rows-1)
	}
	must(t, l.Close())
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Fatal(r.Problems)
	}
}

// TestGroupThatFitsInNoSegment goes into the database, and what comes after
// it into the journal.
func TestGroupThatFitsInNoSegment(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	big := Row{Kind: "big", Claimed: []byte(`"` + strings.Repeat("x", 3<<20) + `"`)}
	mustBegin(t, l, newOperation())
	if n, err := l.Append(t.Context(), big); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	release := holdDatabase(t, in)
	op := newOperation()
	mustBegin(t, l, op)
	cut := image(t, in)
	release()
	if r := mustVerify(t, cut, in.opener(t)); !r.OK || r.Entries != 3 {
		t.Fatalf("%+v", r)
	}
	next := cut.open(t)
	if got, ok, err := next.Operation(op.ID); !ok || err != nil || got.State != action.Indeterminate {
		t.Fatalf("%+v %v", got, err)
	}
}

// TestVersionOneIsMigrated opens a ledger that the program before the journal
// made.
func TestVersionOneIsMigrated(t *testing.T) {
	var in installation
	in.dir = filepath.Join(t.TempDir(), "yett")
	must(t, os.Mkdir(in.dir, 0o700))
	writeFile(t, filepath.Join(in.dir, "ledger.db"), readFile(t, "testdata/v1/ledger.db"))
	fmt.Sscanf(string(readFile(t, "testdata/v1/audit.key")), "%x %x", &in.private, &in.public)
	var entries int64
	var root string
	fmt.Sscan(string(readFile(t, "testdata/v1/root")), &entries, &root)

	writeFile(t, in.journal(), []byte("no journal of version 1"))
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != entries || r.RootHash != root {
		t.Fatalf("as version 1: %+v", r)
	}
	must(t, os.Remove(in.journal()))
	l := in.open(t)
	if i, d := l.Recovered(); i != 1 || d != 1 {
		t.Fatalf("recovered %d and %d", i, d)
	}
	mustBegin(t, l, newOperation())
	rows := allRows(t, l, in.opener(t))
	if int64(len(rows)) != entries+3 {
		t.Fatalf("%d rows", len(rows))
	}
	must(t, l.Close())
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != entries+3 {
		t.Fatalf("migrated: %+v", r)
	}
	var version int
	if err := foreign(t, in).QueryRow("PRAGMA user_version").Scan(&version); err != nil || version != formatVersion {
		t.Fatalf("version %d: %v", version, err) // which the program before refuses
	}
}

// FuzzParseJournal: whatever lies there is parsed or refused, and rows that
// come out go in again.
func FuzzParseJournal(f *testing.F) {
	l := layout{bytes.Repeat([]byte{7}, identitySize), minSegment}
	empty := append(l.header(), make([]byte, segments*minSegment)...)
	one := bytes.Clone(empty)
	copy(one[l.start(0):], l.segmentSector(segmentHead{1, 1}))
	is := columns{id: "op", state: "executing", digest: []byte("d")}
	rows := []loggedRow{{sealedRow{1, 1, []byte("sealed")}, []transition{{is: &is, form: is.encode()}}}}
	copy(one[l.start(0)+sector:], l.appendGroup(nil, 1, l.start(0)+sector, rows))
	if c, err := parseJournal(one); err != nil || len(c.rows) != 1 || c.rows[0].changes[0].is.id != "op" || c.through != 1 || c.torn != nil {
		f.Fatalf("%+v %v", c, err)
	}
	for _, seed := range [][]byte{nil, empty, one, one[:len(one)-5], l.header()} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, whole []byte) {
		c, err := parseJournal(whole)
		if err != nil {
			return
		}
		for _, r := range c.rows {
			again := c.appendGroup(nil, 1, 0, []loggedRow{r})
			if back, n, ok := c.parseGroup(again, 1, 0); !ok || n != int64(len(again)) || back[0].n != r.n {
				t.Fatalf("%+v came back as %+v", r, back)
			}
		}
	})
}
