package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

// ledgerTime bounds a write that somebody waits for.
const ledgerTime = 10 * time.Second

// marshal encodes a part of a row. What the broker puts there cannot fail to
// encode; if it did, the row says so instead of lacking the part.
func marshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`{"unencodable":true}`)
	}
	return raw
}

// recordRefusal adds a row about something that made no operation.
func (b *Broker) recordRefusal(sessionID, channelID, code string, detail map[string]any) {
	b.Ledger.AppendSoon(ledger.Row{Kind: "refused", SessionID: sessionID,
		Verified: marshal(map[string]any{"channel_id": channelID}),
		Request:  marshal(detail), Outcome: marshal(map[string]any{"code": code})})
}

// ledgerFailed turns a failed write into the refusal that the caller gets. The
// cause goes to the log; it holds no content of a row.
func (b *Broker) ledgerFailed(err error) *wire.Error {
	b.Log.Error("using the ledger", "error", err)
	if errors.Is(err, ledger.ErrTampered) {
		return wire.NewError(wire.CodeQuarantined)
	}
	return wire.NewError(wire.CodeLedgerUnavailable)
}

// logPanic records where a fault happened, without values: a stack may hold
// arguments, so only the frames' names are kept.
func (b *Broker) logPanic(where string, p any) {
	b.Log.Error("fault", "in", where, "type", fmt.Sprintf("%T", p), "stack", frames(debug.Stack()))
}

// frames keeps the lines of a stack that name files.
func frames(stack []byte) string {
	out := []byte{}
	for line := range lines(stack) {
		if len(line) > 0 && line[0] == '\t' {
			out = append(append(out, line[1:]...), ';')
		}
	}
	return string(out)
}

func lines(b []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			i := 0
			for i < len(b) && b[i] != '\n' {
				i++
			}
			if !yield(b[:i]) {
				return
			}
			b = b[min(i+1, len(b)):]
		}
	}
}
