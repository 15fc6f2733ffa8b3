package broker

import (
	"context"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// queueForCard makes the operation durable as queued and files its card. Of equal
// requests that come at once only the first is queued, and it is the answer to
// the others: they would share its card, and one yes is for one action.
func (ch *channel) queueForCard(op *operation) (*operation, *wire.Error) {
	b := ch.b
	ch.filing.Lock()
	defer ch.filing.Unlock()
	if first := b.ops.waitingFor(op.queueKey()); first != nil {
		return first, nil
	}
	b.ops.add(op)
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	if _, err := b.Ledger.Queue(ctx, op.record, op.row("queued", nil)); err != nil {
		return nil, b.beginFailed(op, err)
	}
	op.setDurable()
	item, none := ch.fileOperationCard(op, "")
	if none != nil {
		reason := wire.NewReason(none.Code, none.Detail)
		if none.Code == wire.ReasonOutsideCapability { // too long
			reason.NextStep = "Give what is long as the body or as stdin, or split the action."
		}
		_, fail := b.denyFor(op, reason, none.Detail, wire.ActionRequest{})
		return op, fail
	}
	op.mu.Lock()
	op.card = item
	op.mu.Unlock()
	b.ops.setQueued(op.queueKey(), op)
	go b.watchCard(op, item)
	return op, nil
}

// watchCard settles a queued operation although nobody asks: a no, an expiry, a
// withdrawal, or a yes that nobody applied while session and card lasted.
func (b *Broker) watchCard(op *operation, item *approval.Item) {
	<-item.Done()
	d := item.Decision()
	if !d.Granted() {
		b.deny(op, d.Code, "", wire.ActionRequest{})
		return
	}
	end := time.NewTimer(item.End() - b.Clock.SinceBoot())
	defer end.Stop()
	code := wire.ReasonApprovalExpired
	select {
	case <-op.done:
		return
	case <-end.C:
	case <-op.session.Context().Done():
		code = withdrawCode(op.session.EndReason())
	}
	if op.start() {
		b.deny(op, code, "", wire.ActionRequest{})
	}
}

// awaitDecision waits for the card of a queued operation and then runs it, for
// as long as the caller is there. A decision that comes later runs nothing by
// itself: it applies when the same session asks again.
func (ch *channel) awaitDecision(op *operation, sequence, waitMS int64) (any, *wire.Error) {
	op.mu.Lock()
	card := op.card
	op.mu.Unlock()
	if card == nil {
		op.wait(ch, waitMS)
		return op.view(sequence), nil
	}
	deadline := newDeadline(waitMS)
	defer deadline.stop()
	select {
	case <-card.Done():
	default:
		select {
		case <-card.Done():
		case <-op.done:
		case <-deadline.c:
		case <-ch.closed:
		}
	}
	if d := card.Decision(); d.Granted() && ch.b.Clock.SinceBoot() >= card.End() && op.start() {
		return ch.b.deny(op, wire.ReasonApprovalExpired, "", wire.ActionRequest{Sequence: sequence})
	} else if d.Granted() && op.ch == ch {
		ch.b.ops.clearQueued(op.queueKey(), op)
		return ch.run(op, sequence, deadline.leftMS())
	} else if d.Granted() { // the session that asked may still apply it
		op.wait(ch, deadline.leftMS())
	} else if d.Choice != "" && !d.Granted() {
		<-op.done // denied by the watcher of the card
	}
	return op.view(sequence), nil
}

// decided returns the decision on the operation's own card.
func (op *operation) decided() approval.Decision {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.card == nil {
		return approval.Decision{}
	}
	return op.card.Decision()
}
