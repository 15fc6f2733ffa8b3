package ledger

import (
	"encoding/json"
	"errors"

	"github.com/yett-broker/yett/internal/action"
)

const codeRestarted = "broker_restarted"

// recover settles what the last instance left, with the rows and the state
// machine that every other change goes through, and takes the journal into
// use, in one transaction: a crash in it leaves everything to the next start.
func (l *Ledger) recover() error {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, told := range w.found {
		plain := l.encodeAnyway(told)
		if err := w.runLocked(&job{run: func(b *batch) error { b.append(plain); return nil }}); err != nil {
			return err
		}
	}
	for _, op := range w.known.left() {
		kind, to := "recovered", action.Indeterminate
		if op.state == string(action.Queued) {
			kind, to = "denied", action.Denied
			l.recoveredDenied++
		} else {
			l.recoveredIndeterminate++
		}
		outcome, _ := json.Marshal(map[string]string{"state": string(to), "code": codeRestarted})
		plain := l.encodeAnyway(Row{Kind: kind, SessionID: op.session, OperationID: op.id, Outcome: outcome})
		err := w.runLocked(&job{run: func(b *batch) error {
			return b.settleTelling(op.id, action.State(op.state), to, codeRestarted, plain, true)
		}})
		if err != nil {
			return err
		}
	}
	g := w.gathering
	w.gathering, w.leading = newGroup(), true
	next := w.next
	w.mu.Unlock()
	err := w.drain.around(g.rows, func(t *transaction) {
		e, s := w.epoch, &t.d.stmt
		t.exec(s.insertEpoch, e.id, e.recipient, e.enc, e.sealed)
		t.exec(s.useJournal, w.journal.identity, int64(w.journal.generation), next, 1)
	})
	w.mu.Lock()
	w.leading = false
	if err != nil {
		return unavailable(err)
	}
	w.publishLocked(g)
	return nil
}

// leaveJournal says that the next start needs no journal.
func (w *writer) leaveJournal() error {
	if err := w.journal.takeBack(); err != nil {
		return err
	}
	next := w.next // nobody changes it any more
	return w.drain.around(nil, func(t *transaction) {
		t.exec(t.d.stmt.useJournal, w.journal.identity, int64(w.journal.generation), next, 0)
	})
}

// undone takes a change of recovery back. Any other change is an error.
func undone(c change, row int64) (was, is columns, err error) {
	if was, err = parseColumns(c.Was); err != nil {
		return was, is, err
	}
	if is, err = parseColumns(c.Is); err != nil {
		return was, is, err
	}
	want := was
	want.code, want.lastRow = codeRestarted, row
	switch action.State(was.state) {
	case action.Queued:
		want.state = string(action.Denied)
	case action.Executing:
		want.state = string(action.Indeterminate)
	default:
		return was, is, errors.New("it was settled already")
	}
	if differ := is.differences(&want); len(differ) > 0 {
		return was, is, errors.New(differ[0])
	}
	return was, is, nil
}
