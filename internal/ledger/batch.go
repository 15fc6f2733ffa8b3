package ledger

import (
	"encoding/json"
	"time"
)

// batch is what a job changes with. The writer's lock is held meanwhile.
type batch struct {
	w   *writer
	now time.Time
}

// transition is one change of an operation; was is nil for a new one. tellWas
// puts it into the row. form is the canonical form of is. One that is retired
// stays as it is and decides nothing any more: it leaves the table operations.
type transition struct {
	was, is *columns
	tellWas bool
	retired bool
	form    []byte
}

// enter gives a change its effect on what this run knows.
func (k *known) enter(c *transition) {
	if c.retired {
		k.replace(c.was, nil, nil)
		return
	}
	k.replace(c.was, c.is, c.form)
}

// takeBack is the inverse of enter.
func (k *known) takeBack(c *transition) {
	switch {
	case c.retired:
		k.replace(nil, c.was, c.form)
	case c.was == nil:
		k.replace(c.is, nil, nil)
	default:
		k.replace(c.is, c.was, c.was.encode())
	}
}

// number of the next row.
func (b *batch) number() int64 { return b.w.next }

// append adds a row and the changes that it tells of, and returns its number.
func (b *batch) append(plain []byte, changes ...transition) int64 {
	w := b.w
	n := w.next
	w.next++
	for i := range changes {
		t := &changes[i]
		t.form = t.is.encode()
		w.known.enter(t)
		w.undrained[t.is.id] = undrained{*t.is, n}
	}
	table := w.known.table.sum()
	sealed := w.epoch.seal(n, joinEffect(plain, changes, table[:], w.vault.Load()))
	g := w.gathering
	if len(g.rows) == 0 {
		g.since = time.Now()
	}
	g.rows = append(g.rows, loggedRow{sealedRow{n, w.epoch.id, sealed}, changes})
	g.bytes += g.rows[len(g.rows)-1].size()
	return n
}

// resumed is the row that tells of a time in which nothing could be written.
func (w *writer) resumed(kept int, lost int64) []byte {
	outcome, _ := json.Marshal(map[string]int64{"written_late": int64(kept), "lost": lost})
	return w.l.encodeAnyway(Row{Kind: "ledger_resumed", Outcome: outcome})
}
