package broker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

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

// recorded is what a row tells of an action.
func recorded(r action.Request, canonical []byte, digest [32]byte) json.RawMessage {
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
	if len(long) > 0 {
		return marshal(map[string]any{"digest": hexOf(digest[:]), "action": r, "omitted": long})
	}
	return slices.Concat([]byte(`{"action":`), canonical, []byte(`,"digest":"`), []byte(hexOf(digest[:])), []byte(`"}`))
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
	b.unwritten.add(op.id, written)
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

// sentence makes a cause a sentence of its own.
func sentence(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(r)) + s[size:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
