package broker

import (
	"context"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// getOperation answers for an operation of this session, or of an earlier
// session of the same live process. An approved card takes effect here too.
func (ch *channel) getOperation(s *session.Session, m wire.OperationGet) (any, *wire.Error) {
	if op := ch.b.ops.get(m.OperationID); op != nil && op.subject == ch.owner {
		return ch.awaitDecision(op, m.Sequence, m.WaitMS)
	}
	first, ok, err := ch.b.findOperation(m.OperationID)
	if err != nil {
		return nil, ch.b.ledgerFailed(err)
	}
	if !ok || first.Caller != ch.owner {
		return nil, wire.Errorf(wire.CodeBadRequest, "There is no such operation of this process.").
			Then("Give the operation_id that an action's result named.")
	}
	return ch.fromLedger(first, m.Sequence)
}

// findOperation looks an operation up in the ledger, however old it is.
func (b *Broker) findOperation(id string) (ledger.Operation, bool, error) {
	op, ok, err := b.Ledger.Operation(id)
	open := b.state()
	if ok || err != nil || open == nil {
		return op, ok, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	return b.Ledger.Past(ctx, open.opener, id)
}

// fromLedger answers for an operation that is no longer in memory: its state is
// durable, its result is not given again.
func (ch *channel) fromLedger(first ledger.Operation, sequence int64) (any, *wire.Error) {
	v := wire.OperationResult{OperationID: first.ID, Sequence: sequence, State: string(first.State)}
	if first.Intent != 0 {
		v.Activity = activityRef(first.Intent)
	}
	switch first.State {
	case action.Denied:
		v.Reason = wire.NewReason(first.Code, "")
	case action.Indeterminate:
		v.Reason = unknownOutcome(first.Unsafe)
	}
	return v, nil
}
