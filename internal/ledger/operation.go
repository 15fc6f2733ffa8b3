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
	plain, err := l.encode(r)
	if err != nil {
		return 0, err
	}
	if err := checkOperation(op, state); err != nil {
		return 0, err
	}
	if !l.checked.Load() {
		return 0, fmt.Errorf("recording operation %s: %w", op.ID, ErrUnchecked)
	}
	l.w.look()
	var n int64
	err = l.w.do(ctx, func(b *batch) error {
		old, ok, err := b.operation(op.ID)
		if err != nil {
			return err
		}
		if ok {
			return fmt.Errorf("%w: operation %s exists and is %s", ErrTransition, op.ID, old.state)
		}
		err = b.checkKey(op)
		if doubt := b.w.doubt; doubt != nil && state != action.Denied {
			err = doubt
		}
		if err != nil {
			return err
		}
		is := b.newOperation(op, state)
		n = b.append(plain, transition{is: &is})
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
	plain, err := l.encode(r)
	if err != nil {
		return 0, err
	}
	if err := checkOperation(op, action.Executing); err != nil {
		return 0, err
	}
	if budget != nil && len(op.BudgetKey) == 0 {
		return 0, fmt.Errorf("operation %s has a budget and no budget key", op.ID)
	}
	if err := l.ready(); err != nil {
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

// ready is nil when new actions may be taken: the operations of earlier runs
// have been checked, nobody changed them since, and no outcome waits.
func (l *Ledger) ready() error {
	if err := l.Healthy(); err != nil {
		return err
	}
	if !l.checked.Load() {
		return ErrUnchecked
	}
	return nil
}

func (b *batch) begin(op Operation, plain []byte, budget *Budget) (int64, error) {
	old, repeated, err := b.admit(op, budget)
	if doubt := b.w.doubt; doubt != nil { // found just now
		err = doubt
	}
	if err != nil {
		return 0, err
	}
	is := b.newOperation(op, action.Executing)
	if old != nil {
		is = *old
		is.state, is.intent, is.lastRow = string(action.Executing), b.number(), b.number()
	}
	is.began = b.now.UnixNano()
	changes := []transition{{was: old, is: &is}}
	for _, was := range repeated { // the row that resolves it is the intent of the repetition
		resolved := was
		resolved.resolved = b.number()
		changes = append(changes, transition{was: &was, is: &resolved})
	}
	return b.append(plain, changes...), nil
}

// admit makes every check of an intent; it changes nothing. old is the
// operation if it was queued.
func (b *batch) admit(op Operation, budget *Budget) (old *columns, repeated []columns, err error) {
	c, ok, err := b.operation(op.ID)
	if err != nil {
		return nil, nil, err
	}
	if ok {
		old = &c
		if err := checkTransition(op.ID, action.State(c.state), action.Executing); err != nil {
			return nil, nil, err
		}
		if !bytes.Equal(c.digest, op.Digest) || c.session != op.Session {
			return nil, nil, fmt.Errorf("%w: operation %s was queued for another action or session", ErrTransition, op.ID)
		}
	}
	if err := b.checkKey(op); err != nil {
		return nil, nil, err
	}
	if repeated, err = b.checkEquals(op); err != nil {
		return nil, nil, err
	}
	return old, repeated, b.checkBudget(op, budget)
}

// checkKey refuses an idempotency key that another operation has.
func (b *batch) checkKey(op Operation) error {
	if len(op.Idempotency) == 0 {
		return nil
	}
	holder, ok, err := b.keyHolder(op.Idempotency)
	if err != nil {
		return err
	}
	if ok && holder.id != op.ID {
		return ErrKeyUsed{holder.id}
	}
	return nil
}

// checkEquals refuses op while an equal one is executing or indeterminate. An
// approved repetition passes the indeterminate ones, which it returns.
func (b *batch) checkEquals(op Operation) (repeated []columns, err error) {
	if !op.Unsafe {
		return nil, nil
	}
	for _, e := range b.w.known.holding(op.Digest) {
		switch {
		case e.id == op.ID:
		case op.Repeat && e.state == string(action.Indeterminate) && (op.RepeatOf == "" || op.RepeatOf == e.id):
			repeated = append(repeated, e)
		default:
			return nil, ErrUnresolved{e.id}
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
	since := b.now.Add(-budget.Window).UnixNano()
	if b.w.known.spent(op.BudgetKey, since) >= budget.Max {
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
	plain := l.encodeAnyway(r)
	return l.w.settle(func(b *batch) error {
		return b.settle(id, action.Executing, state, code, plain)
	})
}

// Deny ends a queued operation.
func (l *Ledger) Deny(ctx context.Context, id, code string, r Row) error {
	r.OperationID = id
	plain, err := l.encode(r)
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
	return b.settleTelling(id, from, to, code, plain, false)
}

// settleTelling also says, if asked to, what the operation was before.
func (b *batch) settleTelling(id string, from, to action.State, code string, plain []byte, tellWas bool) error {
	was, _, err := b.operation(id)
	if err != nil {
		return err
	}
	if err := checkTransition(id, action.State(was.state), to); err != nil {
		return err
	}
	if was.state != string(from) {
		return fmt.Errorf("%w: operation %s is %s, not %s", ErrTransition, id, was.state, from)
	}
	is := was
	is.state, is.code, is.lastRow = string(to), code, b.number()
	b.append(plain, transition{was: &was, is: &is, tellWas: tellWas})
	return nil
}

// Resolve records what a person says became of an indeterminate operation, so
// that equal ones may run again. The operation stays indeterminate.
func (l *Ledger) Resolve(ctx context.Context, id string, r Row) error {
	r.OperationID = id
	plain, err := l.encode(r)
	if err != nil {
		return err
	}
	if err := l.ready(); err != nil {
		return fmt.Errorf("resolving operation %s: %w", id, err)
	}
	err = l.w.do(ctx, func(b *batch) error {
		was, ok, err := b.operation(id)
		doubt := b.w.doubt
		switch {
		case err != nil:
			return err
		case doubt != nil:
			return doubt
		case !ok:
			return ErrNoOperation
		case was.state != string(action.Indeterminate):
			return fmt.Errorf("%w: it is %s, not indeterminate", ErrTransition, was.state)
		case was.resolved != 0:
			return fmt.Errorf("%w: it is resolved already", ErrTransition)
		}
		is := was
		is.resolved, is.lastRow = b.number(), b.number()
		b.append(plain, transition{was: &was, is: &is})
		return nil
	})
	if err != nil {
		return fmt.Errorf("resolving operation %s: %w", id, err)
	}
	return nil
}

// newOperation is op as its first row, the next one, leaves it.
func (b *batch) newOperation(op Operation, state action.State) columns {
	created := op.CreatedAt
	if created.IsZero() {
		created = b.now
	}
	c := columns{id: op.ID, state: string(state), code: op.Code, session: op.Session, caller: op.Caller,
		digest: bytes.Clone(op.Digest), idem: bytes.Clone(op.Idempotency), lastRow: b.number(), budgetKey: bytes.Clone(op.BudgetKey), at: created.UnixNano()}
	if op.Unsafe {
		c.unsafe = 1
	}
	if state == action.Executing {
		c.intent = b.number()
	}
	return c
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
