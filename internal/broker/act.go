package broker

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
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
	if len(m.IdempotencyKey) > maxKey {
		return nil, wire.Errorf(wire.CodeBadRequest, "idempotency_key is longer than %d bytes.", maxKey)
	}
	op, refusal := ch.newOperation(open, s, m)
	if refusal != nil {
		if refusal.Code == wire.CodeBadRequest {
			fail := wire.Errorf(wire.CodeBadRequest, "%s.", refusal.Detail)
			fail.NextStep = "Correct the action and ask again; list_access shows the capability's kind and what it allows."
			return nil, fail
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
	b.ops.add(op)
	if ch.asksEach(op.plan) {
		if fail := ch.queueForCard(op); fail != nil {
			return nil, fail
		}
		return ch.awaitDecision(op, m.Sequence, m.WaitMS)
	}
	return ch.run(op, m.Sequence, m.WaitMS)
}

// run performs an operation beside the caller and answers with its state once
// it is final, or after waitMS, but not before its intent is durable.
func (ch *channel) run(op *operation, sequence, waitMS int64) (any, *wire.Error) {
	if op.start() {
		began := make(chan *wire.Error, 1)
		ch.b.acting.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					ch.b.logPanic("perform", p)
					ch.b.settleFault(op)
				}
			}()
			ch.b.perform(op, began)
		})
		select {
		case fail := <-began:
			if fail != nil {
				return nil, fail
			}
		case <-op.parked:
		}
	}
	op.wait(ch, waitMS)
	return op.view(sequence), nil
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
	granted := "session"
	if op.decided().Granted() {
		granted = "operation"
	} else if ch.asksEach(op.plan) {
		b.drop(op, wire.ReasonDenied)
		return
	}
	if !s.Spend(op.request.Capability) {
		_, fail := b.deny(op, wire.ReasonCapabilityNotGranted, "", wire.ActionRequest{})
		began <- fail
		return
	}
	// intent: durable before anything leaves. A crash before this line leaves
	// nothing done, a crash after it reads as indeterminate.
	intent, fail := b.begin(op, granted)
	if fail != nil || intent == 0 {
		began <- fail
		return
	}
	op.setExecuting(intent)
	began <- nil

	// peer and session once more, before the step that cannot be taken back
	if fail := ch.recheck(); fail != nil || s.Context().Err() != nil {
		b.settle(op, action.Denied, nil, wire.NewReason(wire.ReasonRevoked, "Nothing was sent."), nil)
		return
	}
	// vault and executor
	out := b.execute(s.Context(), open, op)

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
	op := &operation{id: action.NewOrderedID("op_", ch.b.Clock.Now()), ch: ch, session: s, subject: subjectKey(s.Caller),
		request: action.Request{Capability: m.Capability}, state: action.Queued, done: make(chan struct{}), parked: make(chan struct{})}
	op.record = ledger.Operation{ID: op.id, Session: s.ID, Caller: op.subject, State: action.Queued}
	c, ok := open.policy.Capability(m.Capability)
	if !ok {
		op.recorded = refused(m)
		op.record.Digest = keyed(open.digest, "unknown", []byte(op.id))
		return op, &action.Refusal{Code: wire.ReasonCapabilityUnknown}
	}
	var refusal *action.Refusal
	if c.Kind == action.KindHTTP {
		op.request.HTTP, refusal = m.Action.HTTP()
	} else {
		op.request.SSH, refusal = m.Action.SSH()
	}
	if refusal != nil {
		op.recorded = refused(m)
		op.record.Digest = keyed(open.digest, "refused", []byte(op.id))
		return op, refusal
	}
	d := op.request.Digest()
	op.recorded = recorded(op.request, d)
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
		fail := wire.Errorf(wire.CodeBadRequest, "The idempotency_key was used for another action.")
		fail.NextStep = "Use a new idempotency_key, or none."
		return nil, fail
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
	return fail.With("pending", pendingOf(item))
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

// fileOperationCard puts the card for one action into the queue. When the
// queue takes none it returns the reason.
func (ch *channel) fileOperationCard(op *operation, note string) (*approval.Item, *action.Refusal) {
	b, s := ch.b, op.session
	open := b.state()
	if open == nil {
		return nil, &action.Refusal{Code: wire.ReasonNoApprover}
	}
	digest := hexOf(op.record.Digest)
	item, err := b.queue.File(approval.Proposal{
		Caller: op.subject, Equal: "action\n" + digest + note, NoKey: op.subject + "\n" + digest, SessionID: s.ID,
		Verified: b.verified(ch, s.Caller), Claimed: approval.ClaimedOf(s.Caller, ""),
		Granting: approval.Granting{Unit: action.UnitOperation, LongestEnd: s.Status().ExpiresAt, Note: note,
			Capabilities: []approval.Capability{cardCapability(open.policy, op.request.Capability)}},
		Request: approval.NewRequest(op.id, op.request),
	})
	switch {
	case errors.Is(err, approval.ErrKeptNo):
		return nil, &action.Refusal{Code: wire.ReasonDenied}
	case errors.Is(err, approval.ErrTooMany):
		return nil, &action.Refusal{Code: wire.ReasonNoApprover, Detail: "Too many cards of this caller wait."}
	case err != nil:
		b.Log.Error("filing a card", "error", err)
		return nil, &action.Refusal{Code: wire.ReasonNoApprover}
	}
	return item, nil
}

// queueForCard makes the operation durable as queued and files its card.
func (ch *channel) queueForCard(op *operation) *wire.Error {
	b := ch.b
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	if _, err := b.Ledger.Queue(ctx, op.record, op.row("queued", nil)); err != nil {
		return b.beginFailed(op, err)
	}
	op.setDurable()
	item, none := ch.fileOperationCard(op, "")
	if none != nil {
		_, fail := b.deny(op, none.Code, none.Detail, wire.ActionRequest{})
		return fail
	}
	op.mu.Lock()
	op.card = item
	op.mu.Unlock()
	b.ops.setQueued(op.queueKey(), op)
	go b.watchCard(op, item)
	return nil
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

// begin writes the intent. An intent of 0 without an error means that the
// operation was denied instead.
func (b *Broker) begin(op *operation, granted string) (int64, *wire.Error) {
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
		intent, err := b.Ledger.Begin(ctx, op.record, op.row("intent", map[string]any{
			"capability": op.request.Capability, "by": granted, "unit": op.session.Caller.Unit}), budgetOf(op.plan.Capability))
		cancel()
		if err == nil {
			return intent, nil
		}
		var unresolved ledger.ErrUnresolved
		if errors.As(err, &unresolved) {
			if equal, ok, _ := b.Ledger.Operation(unresolved.ID); ok && equal.State == action.Executing && equal.Caller != op.subject {
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

// row is a row about the operation: evidence, claims, grant and request apart.
func (op *operation) row(kind string, granted map[string]any) ledger.Row {
	r := ledger.Row{Kind: kind, SessionID: op.session.ID, OperationID: op.id, Verified: op.ch.verified, Claimed: op.ch.claimed}
	if granted != nil {
		r.Granted = marshal(granted)
	}
	r.Request = op.recorded
	return r
}

// refused is how a row repeats an action that has no canonical form: as it was
// asked for, if it is not too long.
func refused(m wire.ActionRequest) json.RawMessage {
	out := map[string]any{"capability": approval.Escape(m.Capability, 200), "refused_action": m.Action}
	if raw := marshal(out); len(raw) <= recordedBody {
		return raw
	}
	delete(out, "refused_action")
	out["omitted"] = "the action is longer than a row keeps"
	return marshal(out)
}

// recordedBody is the most of a body that a row repeats; of a longer one it
// keeps size and digest, which together with the rest name it exactly.
const recordedBody = 64 << 10

func recorded(r action.Request, digest [32]byte) json.RawMessage {
	long := map[string]any{}
	shorten := func(name string, b []byte) []byte {
		if len(b) <= recordedBody {
			return b
		}
		long[name] = map[string]any{"size": len(b), "sha256": fmt.Sprintf("%x", sha256.Sum256(b))}
		return nil
	}
	if r.HTTP != nil {
		h := *r.HTTP
		h.Body = shorten("body", h.Body)
		r.HTTP = &h
	}
	if r.SSH != nil {
		s := *r.SSH
		s.Stdin = shorten("stdin", s.Stdin)
		r.SSH = &s
	}
	out := map[string]any{"digest": hexOf(digest[:]), "action": r}
	if len(long) > 0 {
		out["omitted"] = long
	}
	return marshal(out)
}

// deny ends an operation with the reason of a code.
func (b *Broker) deny(op *operation, code, detail string, m wire.ActionRequest) (any, *wire.Error) {
	if code != wire.ReasonOutsideCapability && code != wire.ReasonNoApprover {
		detail = "" // the standing sentence of the code says it all
	} else if detail != "" {
		detail = sentence(detail)
	}
	return b.denyFor(op, wire.NewReason(code, detail), detail, m)
}

// denyFor ends an operation that was not executed: durable, then answered.
func (b *Broker) denyFor(op *operation, reason *wire.Reason, detail string, m wire.ActionRequest) (any, *wire.Error) {
	b.ops.clearQueued(op.queueKey(), op)
	code := reason.Code
	row := op.row("denied", nil)
	row.Outcome = marshal(map[string]any{"code": code, "detail": detail})
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	var err error
	if op.isDurable() {
		err = b.Ledger.Deny(ctx, op.id, code, row)
	} else {
		op.record.State, op.record.Code = action.Denied, code
		_, err = b.Ledger.Refuse(ctx, op.record, row)
	}
	op.finish(action.Denied, nil, reason)
	if err != nil {
		return nil, b.ledgerFailed(err)
	}
	b.ops.add(op)
	return op.view(m.Sequence), nil
}

// drop ends an operation whose session or vault went away before its intent.
func (b *Broker) drop(op *operation, code string) {
	b.deny(op, code, "", wire.ActionRequest{})
}

// settle records the outcome and publishes it. The row may become durable up
// to 10 ms after the answer: a crash in between reads as indeterminate.
func (b *Broker) settle(op *operation, state action.State, result any, reason *wire.Reason, extra map[string]any) {
	code := ""
	if reason != nil {
		code = reason.Code
	}
	row := op.row("outcome", nil)
	row.Request, row.Claimed = nil, nil // the intent has them
	out := map[string]any{"state": state, "result": result}
	for k, v := range extra {
		out[k] = v
	}
	row.Outcome = marshal(out)
	written := b.Ledger.End(op.id, state, code, row)
	op.finish(state, result, reason)
	go func() {
		if err := <-written; err != nil {
			b.Log.Error("an action happened and its outcome could not be recorded", "operation", op.id, "error", err)
		}
	}()
}

// settleFault is for a fault of the broker while it performed: nobody knows how
// far it came.
func (b *Broker) settleFault(op *operation) {
	op.mu.Lock()
	executing := op.state == action.Executing
	op.mu.Unlock()
	if executing {
		b.settle(op, action.Indeterminate, nil, unknownOutcome(op.record.Unsafe), nil)
		return
	}
	b.drop(op, wire.ReasonDenied)
}

// unknownOutcome is the reason of an action that may have happened. Unsafe
// says that repeating it may repeat an effect.
func unknownOutcome(unsafe bool) *wire.Reason {
	r := &wire.Reason{Code: wire.CodeOutcomeUnknown, Message: "It may or may not have happened: its outcome is unknown.",
		NextStep: "Check at the other side whether it happened. Do not repeat it before that is known."}
	if !unsafe {
		r.NextStep = "Ask again if the answer is still needed: repeating this action is allowed."
	}
	return r
}

func activityRef(n int64) string { return fmt.Sprintf("activity:%d", n) }

// outcome is what an executor's work amounts to.
type outcome struct {
	state  action.State
	result any
	reason *wire.Reason
	row    map[string]any // more for the record than for the caller
}

// place is the vault's name for where a credential's value may go.
func place(p *access.Policy, name string) (vault.Declared, bool) {
	c, ok := p.Credential(name)
	return vault.Declared{Name: c.Name, Kind: c.Kind, Place: c.Place()}, ok
}

// sentence makes a cause a sentence of its own.
func sentence(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(r)) + s[size:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
