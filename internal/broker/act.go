package broker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/bulk"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// maxKey is the longest idempotency key in bytes.
const maxKey = 256

// requestAction takes one action of an agent as far as it may go within
// wait_ms.
func (ch *channel) requestAction(s *session.Session, m wire.ActionRequest) (any, *wire.Error) {
	b := ch.b
	open := b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	if fail := b.quarantined(); fail != nil {
		return nil, fail
	}
	if len(m.IdempotencyKey) > maxKey {
		return nil, wire.Errorf(wire.CodeBadRequest, "idempotency_key is longer than %d bytes.", maxKey)
	}
	op, refusal := ch.newOperation(open, s, m)
	if refusal != nil {
		if refusal.Code == wire.CodeBadRequest {
			return nil, wire.Errorf(wire.CodeBadRequest, "%s.", refusal.Detail).
				Then("Correct the action and ask again; list_access shows the capability's kind and what it allows.")
		}
		reason := wire.NewReason(refusal.Code, "")
		if refusal.Code == wire.ReasonOutsideCapability { // no capability has it inside
			reason.Message = "No capability allows such an action. " + sentence(refusal.Detail)
			reason.NextStep = "Change or leave out what the message names, then ask again. The access file cannot allow it."
		}
		return b.denyFor(op, reason, refusal.Detail, m)
	}
	if earlier, fail := ch.earlier(op); earlier != nil || fail != nil {
		if fail != nil {
			return nil, fail
		}
		return ch.answerEarlier(s, earlier, m)
	}
	// What lies outside of a capability is said also to those who were not
	// granted it: asking for it would not help them.
	op.plan = open.policy.Decide(func(string) bool { return true }, op.request)
	if _, ok := s.Granted(m.Capability); op.plan.Allowed && !ok {
		op.plan = access.Decision{Code: wire.ReasonCapabilityNotGranted}
	}
	if !op.plan.Allowed {
		return b.deny(op, op.plan.Code, op.plan.Detail, m)
	}
	if fail := ch.checkUnresolved(op); fail != nil {
		return nil, fail
	}
	if !ch.asksEach(op.plan) {
		b.ops.add(op)
		return ch.run(op, m.Sequence, m.WaitMS)
	}
	asked, fail := ch.queueForCard(op)
	if fail != nil {
		return nil, fail
	}
	return ch.awaitDecision(asked, m.Sequence, m.WaitMS)
}

// run performs an operation beside the caller and answers with its state once
// it is final, or after waitMS, but not before its intent is durable.
func (ch *channel) run(op *operation, sequence, waitMS int64) (any, *wire.Error) {
	if !op.start() { // somebody else performs it
		op.wait(ch, waitMS)
		return op.view(sequence), nil
	}
	began := make(chan *wire.Error, 1)
	if !ch.b.act(op, began) {
		ch.b.drop(op, wire.ReasonRevoked)
		return nil, wire.NewError(wire.CodeSessionEnded).With("end_reason", session.BrokerStopped)
	}
	op.wait(ch, waitMS) // first: whoever waits for the end is not woken for the beginning
	select {
	case fail := <-began:
		if fail != nil {
			return nil, fail
		}
	case <-op.parked:
	}
	return op.view(sequence), nil
}

// act performs an operation beside whoever asked for it. It reports false when
// the broker stops: the stop waits for what began before it, and nothing begins
// afterwards.
func (b *Broker) act(op *operation, began chan<- *wire.Error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return false
	}
	b.acting.Add(1)
	b.workers.do(func() {
		defer b.acting.Done()
		defer func() {
			if p := recover(); p != nil {
				b.logPanic("perform", p)
				b.settleFault(op)
			}
		}()
		b.perform(op, began)
	})
	return true
}

// perform is the order of things. began gets nil once the intent is durable or
// the operation is denied, or else the error that leaves no operation.
func (b *Broker) perform(op *operation, began chan<- *wire.Error) {
	ch, s := op.ch, op.session
	defer close(began)

	// peer: the same live program, still
	if fail := ch.recheck(); fail != nil {
		b.drop(op, wire.ReasonRevoked)
		began <- fail
		return
	}
	// access: judged on what is applied now
	open := b.state()
	if open == nil {
		b.drop(op, wire.ReasonRevoked)
		began <- wire.NewError(wire.CodeLocked)
		return
	}
	op.plan = open.policy.Decide(ch.granted(s), op.request)
	if !op.plan.Allowed {
		_, fail := b.deny(op, op.plan.Code, op.plan.Detail, wire.ActionRequest{})
		began <- fail
		return
	}
	// approval: where each action is asked for, this one's own card was approved;
	// a grant for one action is used up here
	by, unit := "session", s.Caller.Unit
	if op.decided().Granted() || op.record.Repeat {
		by, unit = "operation", action.UnitOperation
	} else if ch.asksEach(op.plan) {
		b.drop(op, wire.ReasonDenied)
		return
	}
	grant, _ := s.Granted(op.request.Capability)
	if !s.Spend(op.request.Capability) {
		_, fail := b.deny(op, wire.ReasonCapabilityNotGranted, "", wire.ActionRequest{})
		began <- fail
		return
	}
	// intent: durable before anything leaves. A crash before this line leaves
	// nothing done, a crash after it reads as indeterminate.
	intent, fail := b.begin(op, map[string]any{"capability": op.request.Capability, "by": by, "unit": unit})
	if fail != nil || intent == 0 {
		began <- fail
		return
	}
	op.setExecuting(intent)
	bulk.Acts(s.ID)
	began <- nil

	// peer and session once more, before the step that cannot be taken back
	if fail := ch.recheck(); fail != nil || !s.Stands(op.request.Capability, grant) {
		out := stopped(s)
		b.settle(op, out.state, out.result, out.reason, out.row)
		return
	}
	// vault and executor
	out := b.execute(open, op)

	// outcome: recorded whatever happened to the caller, then answered
	b.settle(op, out.state, out.result, out.reason, out.row)
}

// asksEach reports whether each action of the capability needs its own card: by
// the access file, or because a guard of the caller's way here is missing.
func (ch *channel) asksEach(d access.Decision) bool {
	return d.Capability.Confirm == access.ConfirmEach || ch.everyOp
}

// granted reports what the session was granted. A card for one operation is a
// grant of its capability to that operation, but the session needs one too.
func (ch *channel) granted(s *session.Session) func(string) bool {
	return func(c string) bool {
		_, ok := s.Granted(c)
		return ok
	}
}

// newOperation decodes the action by the kind of its capability. What cannot
// be decoded is a refusal; the operation is then only a name for its record.
func (ch *channel) newOperation(open *unlocked, s *session.Session, m wire.ActionRequest) (*operation, *action.Refusal) {
	op := &operation{id: action.NewOrderedID("op_", ch.b.Clock.Now()), ch: ch, session: s, subject: ch.owner,
		request: action.Request{Capability: m.Capability}, state: action.Queued, done: make(chan struct{}), parked: make(chan struct{})}
	op.record = ledger.Operation{ID: op.id, Session: s.ID, Caller: op.subject, State: action.Queued}
	c, ok := open.policy.Capability(m.Capability)
	if !ok {
		op.recorded = refused(m)
		op.record.Digest = keyed(open.digest, "unknown", []byte(op.id))
		return op, &action.Refusal{Code: wire.ReasonCapabilityUnknown}
	}
	var refusal *action.Refusal
	if op.request, refusal = m.Action.Of(c.Kind, m.Capability); refusal != nil {
		op.recorded = refused(m)
		op.record.Digest = keyed(open.digest, "refused", []byte(op.id))
		return op, refusal
	}
	canonical := op.request.Canonical()
	d := sha256.Sum256(canonical)
	op.recorded = recorded(op.request, canonical, d)
	op.record.Digest = keyed(open.digest, "action", d[:])
	if c.Budget != nil {
		op.record.BudgetKey = keyed(open.digest, "budget", []byte(m.Capability))
	}
	op.record.Unsafe = op.request.Unsafe() && !c.Repeat
	if m.IdempotencyKey != "" {
		op.record.Idempotency = keyed(open.digest, "idempotency", []byte(op.subject+"\x00"+m.IdempotencyKey))
	}
	return op, nil
}

// keyed is HMAC-SHA-256 under the vault's digest key, separated by purpose.
func keyed(key []byte, purpose string, data []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(purpose))
	m.Write([]byte{0})
	m.Write(data)
	return m.Sum(nil)
}

// begin writes the intent. An intent of 0 without an error means that the
// operation was denied instead.
func (b *Broker) begin(op *operation, granted map[string]any) (int64, *wire.Error) {
	for {
		if op.behind != nil { // an equal action of another session runs: one after the other
			if fail := b.queueBehind(op); fail != nil {
				return 0, fail
			}
			select {
			case <-op.behind.done:
			case <-op.session.Context().Done():
				_, fail := b.deny(op, wire.ReasonRevoked, "", wire.ActionRequest{})
				return 0, fail
			}
			op.behind = nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
		intent, err := b.Ledger.Begin(ctx, op.record, op.row("intent", granted), budgetOf(op.plan.Capability))
		cancel()
		if err == nil {
			return intent, nil
		}
		var unresolved ledger.ErrUnresolved
		if errors.As(err, &unresolved) {
			equal, ok, _ := b.Ledger.Operation(unresolved.ID)
			if ok && equal.State == action.Executing && (equal.Caller != op.subject || op.decided().Granted()) {
				if op.behind = b.ops.get(equal.ID); op.behind != nil {
					continue
				}
			}
		}
		if errors.Is(err, ledger.ErrBudget) {
			_, fail := b.deny(op, wire.ReasonBudgetSpent, "", wire.ActionRequest{})
			return 0, fail
		}
		return 0, b.beginFailed(op, err)
	}
}

// beginFailed says why there is no intent. Nothing was done.
func (b *Broker) beginFailed(op *operation, err error) *wire.Error {
	var unresolved ledger.ErrUnresolved
	var used ledger.ErrKeyUsed
	if errors.As(err, &unresolved) && op.isDurable() { // it waited, and its caller knows its id
		_, fail := b.deny(op, wire.CodeOutcomeUnknown, "", wire.ActionRequest{})
		return fail
	}
	op.finish(action.Denied, nil, wire.NewReason(wire.ReasonDenied, "It was not executed."))
	switch {
	case errors.As(err, &unresolved):
		equal, ok, _ := b.Ledger.Operation(unresolved.ID)
		if !ok {
			return wire.NewError(wire.CodeOutcomeUnknown)
		}
		fail := wire.NewError(wire.CodeOutcomeUnknown)
		if equal.Caller == op.subject {
			fail.With("operation_id", equal.ID)
		}
		return fail
	case errors.As(err, &used):
		return wire.Errorf(wire.CodeBusy, "An action with this idempotency_key began at the same moment; ask again.")
	}
	return b.ledgerFailed(err)
}

func budgetOf(c *access.Capability) *ledger.Budget {
	if c.Budget == nil {
		return nil
	}
	return &ledger.Budget{Max: c.Budget.Max, Window: c.Budget.Window}
}

// place is the vault's name for where a credential's value may go.
func place(p *access.Policy, name string) (vault.Declared, bool) {
	c, ok := p.Credential(name)
	return vault.Declared{Name: c.Name, Kind: c.Kind, Place: c.Place()}, ok
}
