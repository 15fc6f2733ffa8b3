package ledger

import (
	"context"
	"encoding/json"
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
		if b.err != nil {
			return nil
		}
		ops, err := scanOperations(b.w.stmt.left.Query())
		if err != nil {
			b.err = err
			return nil
		}
		for _, op := range ops {
			kind, to := "recovered", action.Indeterminate
			if op.State == action.Queued {
				kind, to = "denied", action.Denied
				denied++
			} else {
				indeterminate++
			}
			outcome, _ := json.Marshal(map[string]string{"state": string(to), "code": codeRestarted})
			plain := l.encodeAnyway(Row{Kind: kind, SessionID: op.Session, OperationID: op.ID, Outcome: outcome}, to)
			if err := b.settle(op.ID, op.State, to, codeRestarted, plain); err != nil {
				b.err = err
				return nil
			}
		}
		return nil
	})
	l.recoveredIndeterminate, l.recoveredDenied = indeterminate, denied
	return err
}
