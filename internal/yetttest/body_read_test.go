package yetttest

import (
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// TestAPersonsReadingOfABodyIsARow: whoever reads what an action brought back
// leaves one row, also if the first byte is left out.
func TestAPersonsReadingOfABodyIsARow(t *testing.T) {
	b := Start(t, StartUpstream(t, canary).Access(), "demo", canary)
	op := b.Granted("http:demo.read").MustAct("http:demo.read", get("/v1/x"))
	for rows, offset := range []int64{1, 0} {
		var piece wire.OperationBodyResult
		b.manage(wire.MethodOperationShowBody, wire.OperationShowBody{OperationID: op.OperationID, Stream: "body", Offset: offset, Limit: 100}, nil, b.reading, &piece)
		if len(piece.BytesBase64) == 0 {
			t.Fatal("nothing was read")
		}
		told := 0
		for _, r := range b.Activity() {
			if r.Kind == "body.read" {
				told++
			}
		}
		if told != rows+1 {
			t.Errorf("from byte %d: %d rows tell of it", offset, told)
		}
	}
}
