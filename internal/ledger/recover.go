package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

const codeRestarted = "broker_restarted"

// recover settles what the last instance left, with the writer, the rows and
// the state machine that every other change goes through, and in one
// transaction: a crash in it leaves everything to the next start.
func (l *Ledger) recover() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var indeterminate, denied int
	err := l.w.do(ctx, func(b *batch) error {
		e := b.w.epoch
		b.exec(b.w.stmt.insertEpoch, e.id, e.recipient, e.enc, e.sealed)
		for _, op := range b.w.known.left() {
			kind, to := "recovered", action.Indeterminate
			if op.state == string(action.Queued) {
				kind, to = "denied", action.Denied
				denied++
			} else {
				indeterminate++
			}
			outcome, _ := json.Marshal(map[string]string{"state": string(to), "code": codeRestarted})
			plain := l.encodeAnyway(Row{Kind: kind, SessionID: op.session, OperationID: op.id, Outcome: outcome})
			if err := b.settleTelling(op.id, action.State(op.state), to, codeRestarted, plain, true); err != nil {
				if b.err == nil { // never a part of it
					b.err = err
				}
				return nil
			}
		}
		return nil
	})
	l.recoveredIndeterminate, l.recoveredDenied = indeterminate, denied
	return err
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
