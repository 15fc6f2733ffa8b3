package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/yett-broker/yett/internal/durable"
)

const journalName = "ledger.journal"

// journalState is what the database says of its journal.
type journalState struct {
	identity   []byte
	generation uint64 // the journal has come so far at least
	resume     int64  // rows from this one on are in the journal before they are here
	inUse      bool   // a broker began and did not end
	problem    string // what an earlier start found, for good
}

func readJournalState(ctx context.Context, q querier) (s journalState, err error) {
	var count int
	var generation int64
	err = q.QueryRowContext(ctx, "SELECT count(*), coalesce(max(identity), x''), coalesce(max(generation), 0), coalesce(max(resume), 0), coalesce(max(in_use), 0), coalesce(max(problem), '') FROM journal").
		Scan(&count, &s.identity, &generation, &s.resume, &s.inUse, &s.problem)
	s.generation = uint64(generation)
	if err == nil && (count != 1 || len(s.identity) != identitySize || generation < 0) {
		err = fmt.Errorf("%w: the table journal is not as it has to be", ErrTampered)
	}
	return s, err
}

// replay is what a start finds in the journal, held against the database.
type replay struct {
	state   journalState
	content *journalContent // nil if there is none that belongs to the database
	rows    []loggedRow     // those that the database does not have
	overlap []loggedRow     // some of those that it has, to be compared
	problem string          // why no broker of ours can have left this
	aside   bool            // the file has to be put aside
}

// plan compares a journal with the database it lies beside, whose newest row
// is head. why tells why there is no content.
func plan(state journalState, head int64, content *journalContent, why string) *replay {
	r := &replay{state: state, content: content}
	say := func(format string, args ...any) {
		if r.problem == "" {
			r.problem = fmt.Sprintf(format, args...)
		}
	}
	defer func() { r.aside = r.aside || r.content != nil && r.problem != "" }()
	if content != nil && !bytes.Equal(content.identity, state.identity) {
		r.content, r.aside = nil, true
		say("ledger.journal belongs to another database")
		return r
	}
	if r.content == nil {
		if state.inUse {
			say("ledger.journal was in use: %s", why)
		}
		return r
	}
	if content.damage != "" {
		say("%s", content.damage)
	}
	if content.generation < state.generation && (content.generation > 0 || state.inUse) { // a fresh one lacks nothing after a clean end
		say("ledger.journal is of generation %d, and ledger.db has seen generation %d: an older file was put in its place", content.generation, state.generation)
	}
	if state.inUse && content.generation > 0 && head >= state.resume && content.through < head {
		say("ledger.journal ends with row %d, and ledger.db with row %d: it was cut, or an older file was put in its place", content.through, head)
	}
	for i, row := range content.rows {
		next := head + 1 + int64(len(r.rows))
		switch {
		case row.n <= head:
			if i+compared >= len(content.rows) || content.rows[i+compared].n > head {
				r.overlap = append(r.overlap, row)
			}
		case row.n == next:
			r.rows = append(r.rows, row)
		default:
			say("ledger.db ends with row %d, and ledger.journal goes on with row %d: an older ledger.db was put in its place", next-1, row.n)
			return r
		}
	}
	if len(r.rows) > 0 && !state.inUse {
		say("ledger.db was closed with row %d, and ledger.journal has more: an older ledger.db was put in its place", head)
	}
	return r
}

// compared is how many of the rows that both have are compared: a file that
// went another way differs in the newest.
const compared = 16

func (r *replay) compare(leafOf func(n int64) ([]byte, error)) error {
	for _, row := range r.overlap {
		stored, err := leafOf(row.n)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if leaf := leafHash(row.n, row.epoch, row.sealed); !bytes.Equal(leaf[:], stored) && r.problem == "" {
			r.problem = fmt.Sprintf("row %d of ledger.journal is not row %[1]d of ledger.db", row.n)
			r.aside = true
		}
	}
	return nil
}

// takeJournal brings what the journal has into the database, and leaves a
// journal with both segments free. It returns rows that tell what was found.
func (w *writer) takeJournal(ctx context.Context) (told []Row, err error) {
	d, p := &w.drain, w.l.place
	state, err := readJournalState(ctx, d.conn)
	if err != nil {
		return nil, explain(err)
	}
	var head int64
	if err := d.conn.QueryRowContext(ctx, "SELECT coalesce(max(n), 0) FROM rows").Scan(&head); err != nil {
		return nil, explain(err)
	}
	there := p.hasJournal()
	file, err := p.openJournal()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	content, why, begun := (*journalContent)(nil), "it is missing", false
	if there {
		if content, err = readJournal(file); errors.Is(err, errNoJournal) {
			why = "it is no journal"
			begun, err = isBegun(file)
		}
		if err != nil {
			return nil, err
		}
	}
	r := plan(state, head, content, why)
	r.aside = r.aside || content == nil && there && !begun
	err = r.compare(func(n int64) (leaf []byte, err error) {
		err = d.conn.QueryRowContext(ctx, "SELECT leaf FROM rows WHERE n=?", n).Scan(&leaf)
		return leaf, explain(err)
	})
	if err != nil {
		return nil, err
	}
	kept, err := r.keepTorn(p.dir)
	if err != nil {
		return nil, err
	}
	if err := d.replay(r); err != nil {
		return nil, fmt.Errorf("replaying ledger.journal: %w", err)
	}
	// A crash from here on finds a journal that the database has all of, or
	// none that it would miss.
	aside := ""
	if r.aside {
		aside = journalName + ".kept-" + rand.Text()[:8]
		if err := errors.Join(os.Rename(p.journal(), filepath.Join(p.dir, aside)), file.Close()); err != nil {
			return nil, fmt.Errorf("keeping ledger.journal aside: %w", err)
		}
		if file, err = p.openJournal(); err != nil {
			return nil, err
		}
	}
	if err := w.prepareJournal(r, file); err != nil {
		return nil, err
	}
	if problem := cmp.Or(state.problem, r.problem); problem != "" {
		w.doubt = fmt.Errorf("%w: %s", ErrTampered, problem)
	}
	return r.tell(kept, aside), nil
}

// isBegun reports whether the file is a journal whose making was cut short:
// its header, which comes last, is not there.
func isBegun(f *os.File) (bool, error) {
	content := make([]byte, 64<<10)
	for off := int64(0); ; off += int64(len(content)) {
		n, err := f.ReadAt(content, off)
		if !isZero(content[:n]) {
			return false, nil
		}
		if n < len(content) {
			if errors.Is(err, os.ErrClosed) {
				return false, err
			}
			return true, nil
		}
	}
}

// keepTorn copies what is neither a group nor an end to a file of its own.
// The same end has the same name: a second start does not make a second copy.
func (r *replay) keepTorn(dir string) (name string, err error) {
	if r.content == nil || r.content.torn == nil {
		return "", nil
	}
	t := r.content.torn
	name = fmt.Sprintf("%s.torn-%d-%d", journalName, r.content.generation, t.offset)
	if err := durable.WriteFile(filepath.Join(dir, name), t.bytes, false); err != nil {
		return "", fmt.Errorf("keeping the torn end of ledger.journal: %w", err)
	}
	return name, nil
}

// replay is one transaction. A crash before its commit finds all as it was.
func (d *drain) replay(r *replay) error {
	if _, err := d.stmt.begin.Exec(); err != nil {
		return explain(err)
	}
	t := &transaction{d: d}
	for i := range r.rows {
		t.row(&r.rows[i])
		for _, c := range r.rows[i].changes {
			if c.retired {
				t.exec(d.stmt.putFinished, c.is.args()...)
				t.exec(d.stmt.dropOp, c.is.id)
				continue
			}
			t.exec(d.stmt.putOp, c.is.args()...)
		}
	}
	generation := r.state.generation
	if r.content != nil {
		generation = max(generation, r.content.generation)
	}
	if r.problem != "" {
		t.exec(d.stmt.foundProblem, r.problem)
	}
	t.exec(d.stmt.useJournal, r.state.identity, int64(generation), r.state.resume, 0)
	t.exec(d.stmt.commit)
	if t.err != nil {
		_, _ = d.stmt.rollback.Exec()
		return explain(t.err)
	}
	return nil
}

// prepareJournal leaves a journal that goes on after the generations that
// there were, or a fresh one.
func (w *writer) prepareJournal(r *replay, file *os.File) error {
	l, generation, segment := layout{r.state.identity, segmentSize}, uint64(0), 1 // of a fresh one
	if r.content != nil && !r.aside {
		l, generation, segment = r.content.layout, max(r.state.generation, r.content.generation), r.content.newest
		if err := eraseTorn(file, r.content.torn); err != nil {
			return err
		}
	} else if err := makeJournal(file, l); err != nil {
		return err
	} else if err := durable.SyncDir(w.l.place.dir); err != nil {
		return err
	}
	w.journal = newJournal(l, journalFile{file}, generation, segment)
	w.generation.Store(generation)
	return nil
}

// eraseTorn takes a torn end away, which lies in a file of its own by now: a
// later start would find it before groups that are newer.
func eraseTorn(file *os.File, t *tornEnd) error {
	if t == nil {
		return nil
	}
	if _, err := file.WriteAt(make([]byte, len(t.bytes)), t.offset); err != nil {
		return fmt.Errorf("erasing the torn end of ledger.journal: %w", err)
	}
	return file.Sync()
}

// tell makes the rows that say what was found.
func (r *replay) tell(torn, aside string) []Row {
	var rows []Row
	add := func(kind string, outcome map[string]any) {
		text, _ := json.Marshal(outcome)
		rows = append(rows, Row{Kind: kind, Outcome: text})
	}
	if torn != "" {
		add("journal_torn", map[string]any{"bytes": len(r.content.torn.bytes), "kept_in": torn, "after_row": r.content.through})
	}
	if r.problem != "" || aside != "" {
		add("journal_changed", map[string]any{"problem": r.problem, "kept_in": aside})
	}
	return rows
}
