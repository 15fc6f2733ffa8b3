package broker

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// operation is one action on its way. The first group never changes.
type operation struct {
	id      string
	ch      *channel
	session *session.Session
	subject string
	request action.Request
	plan    access.Decision // as it was when the request came; judged again before the intent
	record  ledger.Operation
	// recorded is the request as rows repeat it.
	recorded json.RawMessage
	behind   *operation    // the equal one of another session that it waits for; owned by perform
	done     chan struct{} // closed with the final state
	parked   chan struct{} // closed when it waits behind an equal one

	mu      sync.Mutex
	state   action.State
	card    *approval.Item // the card that it waits for, if any
	intent  int64
	result  any
	reason  *wire.Reason
	started bool // perform was entered
	durable bool // the ledger has it as queued
}

func (op *operation) setDurable() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.durable = true
}

func (op *operation) isDurable() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.durable
}

// park tells that the operation now waits for another one to end.
func (op *operation) park() {
	select {
	case <-op.parked:
	default:
		close(op.parked)
	}
}

// start reports whether the caller is the one that may perform the operation.
func (op *operation) start() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.started || op.state.Final() {
		return false
	}
	op.started = true
	return true
}

// finish sets the final state and wakes whoever waits. It happens once.
func (op *operation) finish(state action.State, result any, reason *wire.Reason) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.state.Final() {
		return
	}
	op.state, op.result, op.reason, op.card = state, result, reason, nil
	op.request.HTTP, op.request.SSH, op.request.Copy, op.recorded = nil, nil, nil, nil // the rows have them; thousands of ended ones are remembered
	close(op.done)
}

func (op *operation) setExecuting(intent int64) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.state, op.intent, op.card = action.Executing, intent, nil
}

// view is the operation as its caller sees it.
func (op *operation) view(sequence int64) wire.OperationResult {
	op.mu.Lock()
	defer op.mu.Unlock()
	v := wire.OperationResult{OperationID: op.id, Sequence: sequence, State: string(op.state), Result: op.result, Reason: op.reason}
	if op.card != nil && op.state == action.Queued {
		v.Pending = op.ch.b.pendingOf(op.card)
	}
	if op.intent != 0 {
		v.Activity = activityRef(op.intent)
	}
	return v
}

// wait waits for the final state, at most waitMS and not beyond the session.
func (op *operation) wait(ch *channel, waitMS int64) {
	if waitMS <= 0 {
		return
	}
	limit := time.NewTimer(time.Duration(waitMS) * time.Millisecond)
	defer limit.Stop()
	select {
	case <-op.done:
	case <-limit.C:
	case <-ch.closed:
	}
}

// keptOperations bounds the finished operations that are remembered with their
// results; older ones are answered from the ledger.
const keptOperations = 4096

// operations has the operations of this instance.
type operations struct {
	mu     sync.Mutex
	byID   map[string]*operation
	queued map[string]*operation // by session and request digest
	order  []string
}

func newOperations() *operations {
	return &operations{byID: map[string]*operation{}, queued: map[string]*operation{}}
}

func (o *operations) add(op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID[op.id] == op {
		return
	}
	o.byID[op.id] = op
	o.order = append(o.order, op.id)
	for len(o.order) > keptOperations {
		oldest := o.byID[o.order[0]]
		if oldest != nil {
			select {
			case <-oldest.done:
			default:
				return // the oldest is still under way: keep it and what follows
			}
		}
		delete(o.byID, o.order[0])
		o.order = o.order[1:]
	}
}

func (o *operations) get(id string) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[id]
}

// waitingFor returns the operation of a session that waits for a card about an
// equal request.
func (o *operations) waitingFor(key string) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queued[key]
}

func (o *operations) setQueued(key string, op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queued[key] = op
}

func (o *operations) clearQueued(key string, op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queued[key] == op {
		delete(o.queued, key)
	}
}
