package broker

import (
	"bytes"
	"context"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// earlier finds the first operation of an idempotency key, or the one of this
// session that already waits for a card about the equal request.
func (ch *channel) earlier(op *operation) (*ledger.Operation, *wire.Error) {
	if first := ch.b.ops.waitingFor(op.queueKey()); first != nil {
		return &first.record, nil
	}
	if op.record.Idempotency == nil {
		return nil, nil
	}
	first, ok, err := ch.b.Ledger.ByIdempotency(op.record.Idempotency)
	if err != nil {
		return nil, ch.b.ledgerFailed(err)
	}
	if !ok {
		return nil, nil
	}
	if !bytes.Equal(first.Digest, op.record.Digest) {
		return nil, wire.Errorf(wire.CodeBadRequest, "The idempotency_key was used for another action.").
			Then("Use a new idempotency_key, or none.")
	}
	return &first, nil
}

func (op *operation) queueKey() string { return op.session.ID + string(op.record.Digest) }

func (ch *channel) answerEarlier(s *session.Session, first *ledger.Operation, m wire.ActionRequest) (any, *wire.Error) {
	if op := ch.b.ops.get(first.ID); op != nil {
		return ch.awaitDecision(op, m.Sequence, m.WaitMS)
	}
	return ch.fromLedger(*first, m.Sequence)
}

// checkUnresolved refuses an unsafe action while an equal one is unresolved,
// unless a person has approved the repetition.
func (ch *channel) checkUnresolved(op *operation) *wire.Error {
	if !op.record.Unsafe {
		return nil
	}
	equal, ok, err := ch.b.Ledger.Unresolved(op.record.Digest)
	if err != nil {
		return ch.b.ledgerFailed(err)
	}
	if !ok {
		return nil
	}
	if running := ch.b.ops.get(equal.ID); equal.State == action.Executing && equal.Caller != op.subject && running != nil {
		op.behind = running
		return nil
	}
	return ch.unresolved(op, equal)
}

// unresolved answers outcome_unknown and files the card that asks whether the
// action may be repeated. When that card was approved, it lets op go ahead.
func (ch *channel) unresolved(op *operation, equal ledger.Operation) *wire.Error {
	key := string(op.record.Digest)
	fail := wire.NewError(wire.CodeOutcomeUnknown)
	if equal.Caller == op.subject {
		fail.With("operation_id", equal.ID)
	}
	if equal.State == action.Executing {
		fail.Message, fail.NextStep = "An equal action is still running.", "Wait for it to end, then ask again."
		if equal.Caller == op.subject {
			fail.NextStep = "Ask for its state with get_operation."
		}
		return fail
	}
	if ch.takeRepeat(key) {
		op.record.Repeat, op.record.RepeatOf = true, equal.ID
		return nil
	}
	item, none := ch.fileOperationCard(op, "The outcome of an equal earlier action ("+equal.ID+") is unknown: it may have happened already.")
	if none != nil {
		return notAsked(fail, none.Code)
	}
	ch.mu.Lock()
	ch.repeats[key] = item
	ch.mu.Unlock()
	return fail.With("pending", ch.b.pendingOf(item))
}

// notAsked says in outcome_unknown why no card asks for the repetition.
func notAsked(fail *wire.Error, code string) *wire.Error {
	message, next := wire.Advice(code)
	if code == wire.ReasonDenied {
		message = "A person said no to repeating it."
	}
	fail.Message += " " + message
	fail.NextStep = next
	return fail.With("reason", code)
}

// takeRepeat uses up an approved card about a repetition: the repeated request
// runs once, and not after the card's end.
func (ch *channel) takeRepeat(key string) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	card := ch.repeats[key]
	if card == nil || !card.Decision().Granted() {
		return false
	}
	delete(ch.repeats, key)
	return ch.b.Clock.SinceBoot() < card.End()
}

// queueBehind makes an operation durable as queued before it waits for another.
func (b *Broker) queueBehind(op *operation) *wire.Error {
	defer op.park()
	if op.isDurable() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	if _, err := b.Ledger.Queue(ctx, op.record, op.row("queued", nil)); err != nil {
		return b.beginFailed(op, err)
	}
	op.setDurable()
	return nil
}
