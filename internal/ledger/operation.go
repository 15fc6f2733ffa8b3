package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// follows is the state machine; "" is an operation that is not there yet.
// Executing to denied is an action that was stopped before anything was sent.
var follows = map[action.State][]action.State{
	"":               {action.Queued, action.Executing, action.Denied},
	action.Queued:    {action.Executing, action.Denied},
	action.Executing: {action.Completed, action.Denied, action.Indeterminate},
}

func checkTransition(id string, from, to action.State) error {
	if slices.Contains(follows[from], to) {
		return nil
	}
	if from == "" {
		return fmt.Errorf("%w: %s", ErrNoOperation, id)
	}
	return fmt.Errorf("%w: operation %s is %s, not to become %s", ErrTransition, id, from, to)
}

// Queue records a new operation that waits.
func (l *Ledger) Queue(ctx context.Context, op Operation, r Row) (int64, error) {
	return l.open(ctx, op, r, action.Queued)
}

// Refuse records a new operation that is denied at once, with op.Code.
func (l *Ledger) Refuse(ctx context.Context, op Operation, r Row) (int64, error) {
	return l.open(ctx, op, r, action.Denied)
}

func (l *Ledger) open(ctx context.Context, op Operation, r Row, state action.State) (int64, error) {
	r.OperationID, r.SessionID = op.ID, op.Session
	plain, err := l.encode(r, state)
	if err != nil {
		return 0, err
	}
	if err := checkOperation(op, state); err != nil {
		return 0, err
	}
	var n int64
	err = l.w.do(ctx, func(b *batch) error {
		if old, ok := b.operation(op.ID); ok {
			return fmt.Errorf("%w: operation %s exists and is %s", ErrTransition, op.ID, old.State)
		}
		if err := b.checkKey(op); err != nil {
			return err
		}
		n = b.append(plain)
		b.insert(op, state, n, 0)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("recording operation %s: %w", op.ID, err)
	}
	return n, nil
}

// Begin makes the intent of op durable and puts op in state executing: the
// action may go ahead when, and only when, it returns without an error. The
// operation is new or was queued. Looking for equal operations, for the
// idempotency key and at the budget is one critical section with the write.
func (l *Ledger) Begin(ctx context.Context, op Operation, r Row, budget *Budget) (intent int64, err error) {
	r.OperationID, r.SessionID = op.ID, op.Session
	plain, err := l.encode(r, action.Executing)
	if err != nil {
		return 0, err
	}
	if err := checkOperation(op, action.Executing); err != nil {
		return 0, err
	}
	if budget != nil && len(op.BudgetKey) == 0 {
		return 0, fmt.Errorf("operation %s has a budget and no budget key", op.ID)
	}
	if err := l.Healthy(); err != nil { // an outcome waits: take no new ones
		return 0, fmt.Errorf("recording intent of operation %s: %w", op.ID, err)
	}
	err = l.w.do(ctx, func(b *batch) error {
		var err error
		intent, err = b.begin(op, plain, budget)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("recording intent of operation %s: %w", op.ID, err)
	}
	return intent, nil
}

func (b *batch) begin(op Operation, plain []byte, budget *Budget) (int64, error) {
	old, queued := b.operation(op.ID)
	if err := checkTransition(op.ID, old.State, action.Executing); err != nil {
		return 0, err
	}
	if queued && (!bytes.Equal(old.Digest, op.Digest) || old.Session != op.Session) {
		return 0, fmt.Errorf("%w: operation %s was queued for another action or session", ErrTransition, op.ID)
	}
	if err := b.checkKey(op); err != nil {
		return 0, err
	}
	repeated, err := b.checkEquals(op)
	if err != nil {
		return 0, err
	}
	if err := b.checkBudget(op, budget); err != nil {
		return 0, err
	}
	n := b.append(plain)
	for _, id := range repeated { // its row is the intent of the repetition
		b.exec(b.w.stmt.markOp, n, id)
	}
	if queued {
		b.exec(b.w.stmt.startOp, n, n, b.now.UnixNano(), op.ID)
	} else {
		b.insert(op, action.Executing, n, b.now.UnixNano())
	}
	return n, nil
}

// checkKey refuses an idempotency key that another operation has.
func (b *batch) checkKey(op Operation) error {
	var id string
	if len(op.Idempotency) > 0 && b.scan(b.w.stmt.keyHolder, []any{op.Idempotency}, &id) && id != op.ID {
		return ErrKeyUsed{id}
	}
	return nil
}

// checkEquals refuses op while an equal one is executing or indeterminate. An
// approved repetition passes the indeterminate ones, which it returns.
func (b *batch) checkEquals(op Operation) (repeated []string, err error) {
	if !op.Unsafe {
		return nil, nil
	}
	for _, e := range b.unresolved(op.Digest) {
		switch {
		case e.ID == op.ID:
		case op.Repeat && e.State == action.Indeterminate && (op.RepeatOf == "" || op.RepeatOf == e.ID):
			repeated = append(repeated, e.ID)
		default:
			return nil, ErrUnresolved{e.ID}
		}
	}
	return repeated, nil
}

// checkBudget counts intents, whatever became of them. After the clock was
// set back, intents of the future count too: the strict side.
func (b *batch) checkBudget(op Operation, budget *Budget) error {
	if budget == nil {
		return nil
	}
	spent := 0
	since := b.now.Add(-budget.Window).UnixNano()
	if b.scan(b.w.stmt.spent, []any{op.BudgetKey, since, budget.Max}, &spent) && spent >= budget.Max {
		return ErrBudget
	}
	return nil
}

// End hands the outcome of an executing operation to the next commit, at most
// 10 ms away; the channel tells when it is durable. It depends on no caller's
// context. If the commit fails the ledger is unhealthy and keeps the outcome
// for the next try.
func (l *Ledger) End(id string, state action.State, code string, r Row) <-chan error {
	r.OperationID = id
	plain := l.encodeAnyway(r, state)
	return l.w.settle(func(b *batch) error {
		return b.settle(id, action.Executing, state, code, plain)
	})
}

// Deny ends a queued operation.
func (l *Ledger) Deny(ctx context.Context, id, code string, r Row) error {
	r.OperationID = id
	plain, err := l.encode(r, action.Denied)
	if err != nil {
		return err
	}
	err = l.w.do(ctx, func(b *batch) error {
		return b.settle(id, action.Queued, action.Denied, code, plain)
	})
	if err != nil {
		return fmt.Errorf("denying operation %s: %w", id, err)
	}
	return nil
}

// settle moves an operation from one state to a final one.
func (b *batch) settle(id string, from, to action.State, code string, plain []byte) error {
	op, _ := b.operation(id)
	if err := checkTransition(id, op.State, to); err != nil {
		return err
	}
	if op.State != from {
		return fmt.Errorf("%w: operation %s is %s, not %s", ErrTransition, id, op.State, from)
	}
	n := b.append(plain)
	b.exec(b.w.stmt.settleOp, string(to), code, n, id)
	return nil
}

// Resolve records what a person says became of an indeterminate operation, so
// that equal ones may run again. The operation stays indeterminate.
func (l *Ledger) Resolve(ctx context.Context, id string, r Row) error {
	r.OperationID = id
	plain, err := l.encode(r, stateResolved)
	if err != nil {
		return err
	}
	err = l.w.do(ctx, func(b *batch) error {
		op, ok := b.operation(id)
		switch {
		case !ok:
			return ErrNoOperation
		case op.State != action.Indeterminate:
			return fmt.Errorf("%w: it is %s, not indeterminate", ErrTransition, op.State)
		case op.Resolved != 0:
			return fmt.Errorf("%w: it is resolved already", ErrTransition)
		}
		n := b.append(plain)
		b.exec(b.w.stmt.resolveOp, n, n, id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("resolving operation %s: %w", id, err)
	}
	return nil
}

// insert writes a new operation whose first row is n.
func (b *batch) insert(op Operation, state action.State, n, began int64) {
	created := op.CreatedAt
	if created.IsZero() {
		created = b.now
	}
	intent := int64(0)
	if state == action.Executing {
		intent = n
	}
	b.exec(b.w.stmt.insertOp, op.ID, string(state), op.Code, op.Session, op.Caller, append([]byte{}, op.Digest...), optional(op.Idempotency),
		op.Unsafe, intent, n, 0, optional(op.BudgetKey), created.UnixNano(), began)
}

func (b *batch) operation(id string) (Operation, bool) {
	if b.err != nil {
		return Operation{}, false
	}
	op, ok, err := one(b.w.stmt.operation.Query(id))
	b.err = err
	return op, ok
}

func (b *batch) unresolved(digest []byte) []Operation {
	if b.err != nil {
		return nil
	}
	ops, err := scanOperations(b.w.stmt.equals.Query(digest))
	b.err = err
	return ops
}

// optional is NULL for an absent digest.
func optional(digest []byte) any {
	if len(digest) == 0 {
		return nil
	}
	return digest
}

// checkOperation refuses what the tables would refuse: there it would fail
// everything that shares the commit.
func checkOperation(op Operation, to action.State) error {
	switch created := op.CreatedAt; {
	case op.ID == "":
		return errors.New("an operation needs an id")
	case len(op.Digest) == 0 && to != action.Denied:
		return fmt.Errorf("operation %s has no digest", op.ID)
	case !created.IsZero() && (created.Year() < 1970 || created.Year() > 2200):
		return fmt.Errorf("operation %s: creation time out of range", op.ID)
	}
	return nil
}

func fromNanos(ns int64) time.Time { return time.Unix(0, ns).UTC() }
