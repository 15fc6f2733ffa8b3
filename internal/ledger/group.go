package ledger

import (
	"fmt"
	"time"
)

const (
	// soonDelay is how long a group that nobody waits for is put off, so that
	// it shares a sync. With the sync itself it stays under 10 ms.
	soonDelay = 5 * time.Millisecond
	// retryDelay is the time between two tries to write what is kept.
	retryDelay = time.Second
	// maxWaiting bounds the rows of a group that is gathered while another
	// one is written, and maxKept the rows held after a failed one.
	maxWaiting = 1 << 14
	maxKept    = 1 << 12
)

// job is one piece of work for the writer. run must refuse, if it does,
// before its first change.
type job struct {
	run     func(*batch) error
	done    chan error // one result; nil when nobody listens any more
	keep    bool       // it has happened: try again after a failed write
	outcome bool       // lookups must see it
}

func (j *job) finish(err error) {
	if j.done != nil {
		j.done <- err
		j.done = nil
	}
}

// group is what one sync makes durable. Its rows have their effect on what
// this run knows from the moment that they are in it; who asked for them is
// told when they are durable.
type group struct {
	rows  []loggedRow
	bytes int // of the records
	jobs  []*job
	since time.Time // when the first row came
	late  int64     // rows that had to be dropped before, which this group tells of

	urgent bool          // somebody waits
	lead   chan struct{} // wakes one of those who wait, to write the group
	done   chan struct{} // closed with err set
	err    error
}

func newGroup() *group { return &group{lead: make(chan struct{}, 1), done: make(chan struct{})} }

// enterLocked runs a job in the group that is gathered, after what an earlier
// failure left.
func (w *writer) enterLocked(j *job) (*group, error) {
	if w.closed {
		return nil, errClosed
	}
	// An outcome is always taken: there are no more of them than intents.
	if len(w.gathering.rows) >= maxWaiting && !j.outcome {
		err := fmt.Errorf("%w: too many rows wait", ErrUnavailable)
		if j.keep {
			w.lost++
			w.sick = err
		}
		return nil, err
	}
	w.enterKeptLocked()
	return w.gathering, w.runLocked(j)
}

func (w *writer) enterKeptLocked() {
	if len(w.kept) == 0 && w.lost == 0 {
		return
	}
	kept, lost := w.kept, w.lost
	w.kept, w.lost = nil, 0
	w.gathering.late += lost
	for _, j := range kept {
		_ = w.runLocked(j) // who waited was told when it failed first
	}
	b := batch{w: w, now: w.l.now()}
	b.append(w.resumed(len(kept), lost))
}

func (w *writer) runLocked(j *job) error {
	b := batch{w: w, now: w.l.now()}
	before := len(w.gathering.rows)
	if err := j.run(&b); err != nil {
		return err
	}
	if len(w.gathering.rows) > before {
		w.gathering.jobs = append(w.gathering.jobs, j)
	}
	return nil
}

// awaitLocked returns when g is decided; it unlocks. Where nobody writes, the
// caller does.
func (w *writer) awaitLocked(g *group) error {
	g.urgent = true
	if !w.leading {
		w.leadLocked()
		w.mu.Unlock()
		return g.err
	}
	w.mu.Unlock()
	select {
	case <-g.done:
	case <-g.lead:
		w.mu.Lock()
		if w.gathering == g && !w.leading {
			w.leadLocked()
		}
		w.mu.Unlock()
		<-g.done
	}
	return g.err
}

// leadLocked writes the group that was gathered. The lock is not held
// meanwhile; the next group gathers.
func (w *writer) leadLocked() {
	g := w.gathering
	if len(g.rows) == 0 && w.sick == nil { // all of it is durable
		close(g.done)
		w.gathering = newGroup()
		return
	}
	w.gathering, w.leading = newGroup(), true
	w.mu.Unlock()
	err := w.write(g)
	w.mu.Lock()
	w.leading = false
	if err != nil {
		w.failLocked(g, unavailable(err))
	} else {
		w.publishLocked(g)
	}
	close(g.done)
	w.idle.Broadcast()
	if next := w.gathering; next.urgent {
		next.lead <- struct{}{}
	} else if w.sick != nil {
		w.armLocked(time.Until(w.retryAt))
	} else if len(next.rows) > 0 {
		w.armLocked(soonDelay)
	}
}

// write makes a group durable: in the journal, or, where it fits in no
// segment, in the database.
func (w *writer) write(g *group) error {
	if len(g.rows) == 0 {
		return w.journal.probe()
	}
	size := groupSize(g.bytes)
	if !w.journal.fits(size) {
		return w.drain.around(g.rows, nil)
	}
	// The place of a full segment is free when the database has its rows.
	if n := w.journal.needsFree(size); n > w.drain.through.Load() {
		if err := w.drain.upTo(n); err != nil {
			return err
		}
	}
	if err := w.journal.write(g.rows, size); err != nil {
		return err
	}
	w.generation.Store(w.journal.generation)
	return nil
}

// publishLocked tells everybody that a group is durable.
func (w *writer) publishLocked(g *group) {
	if w.lost == 0 && len(w.kept) == 0 {
		w.sick = nil
	}
	if len(g.rows) > 0 {
		w.commits.Add(1)
		last := g.rows[len(g.rows)-1].n
		w.l.entries.Store(last)
		if last > w.drain.through.Load() { // not if it went into the database
			w.pending = append(w.pending, g.rows...)
			w.drain.ring()
		} else {
			w.forgetDrainedLocked(g.rows)
		}
	}
	for _, j := range g.jobs {
		j.finish(nil)
	}
}

// failLocked takes back a group, and the one that was gathered on top of it.
// What tells of something that has happened is kept for the next try.
func (w *writer) failLocked(g *group, err error) {
	next := w.gathering
	w.takeBackLocked(next)
	w.takeBackLocked(g)
	w.sick = err
	w.retryAt = time.Now().Add(retryDelay)
	w.lost += g.late + next.late
	w.keepLocked(append(g.jobs, next.jobs...))
	w.gathering = newGroup()
	// Only now: whoever hears of a lost outcome finds the ledger unhealthy.
	for _, j := range append(g.jobs, next.jobs...) {
		j.finish(err)
	}
	g.err, next.err = err, err
	if next != g {
		close(next.done)
	}
	w.armLocked(retryDelay)
}

func (w *writer) keepLocked(jobs []*job) {
	rows := 0
	for _, j := range w.kept {
		if !j.outcome {
			rows++
		}
	}
	for _, j := range jobs {
		switch {
		case j.outcome: // there are no more of them than intents
			w.kept = append(w.kept, j)
		case j.keep && rows < maxKept:
			w.kept = append(w.kept, j)
			rows++
		case j.keep:
			w.lost++
		}
	}
}

func (w *writer) takeBackLocked(g *group) {
	for i := len(g.rows) - 1; i >= 0; i-- {
		r := &g.rows[i]
		for k := len(r.changes) - 1; k >= 0; k-- {
			c := &r.changes[k]
			w.known.takeBack(c)
			delete(w.undrained, c.is.id)
			if c.was != nil && c.was.newest() > w.drain.through.Load() {
				w.undrained[c.was.id] = undrained{*c.was, c.was.newest()}
			}
		}
		w.next = r.n
	}
}

// armLocked sees to it that a group that nobody waits for is written.
func (w *writer) armLocked(after time.Duration) {
	if !w.armed && !w.closed {
		w.armed = true
		w.soon.Reset(after)
	}
}

// overdue is called by the timer.
func (w *writer) overdue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	g := w.gathering
	switch {
	case w.closed || w.leading: // who leads arms it again
	case w.sick != nil:
		if left := time.Until(w.retryAt); left > 0 {
			w.armLocked(left)
			return
		}
		w.enterKeptLocked()
		w.leadLocked()
	case len(g.rows) > 0:
		if left := soonDelay - time.Since(g.since); left > 0 {
			w.armLocked(left)
			return
		}
		w.leadLocked()
	}
}
