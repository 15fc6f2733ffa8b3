package yetttest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// TestE3_ResolvedByAPerson: after a crash between send and result a retry is
// refused; a person states by proof what happened, and then the repeated
// request runs once.
func TestE3_ResolvedByAPerson(t *testing.T) {
	for _, said := range []string{"--happened", "--did-not-happen"} {
		up, arrived := hangs(t)
		b := Start(t, up.Access(), "demo", canary)
		c := b.Granted("http:demo.write")
		post := map[string]any{"method": "POST", "path": "/v1/hang"}
		var op Operation
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": post}), &op)
		if r := b.Run("operation", "resolve", op.OperationID, said); r.Code != 1 {
			t.Fatalf("while it runs: %d %s", r.Code, r.Stderr)
		}
		<-arrived
		b.Restart()
		c = b.Granted("http:demo.write")
		if r := c.Act("http:demo.write", post); r.Code() != wire.CodeOutcomeUnknown {
			t.Fatalf("the retry: %q", r.Code())
		}
		if r := b.RunPlain("operation", "resolve", op.OperationID, said); r.Code != 3 || !strings.Contains(r.Stderr, "proof") {
			t.Fatalf("without a proof: %d %s", r.Code, r.Stderr)
		}
		if r := b.RunWith("", "not the passphrase", "operation", "resolve", op.OperationID, said); r.Code != 3 {
			t.Fatalf("with a wrong proof: %d %s", r.Code, r.Stderr)
		}
		for _, wrong := range [][]string{{op.OperationID}, {op.OperationID, "--happened", "--did-not-happen"}} {
			if r := b.Run(append([]string{"operation", "resolve"}, wrong...)...); r.Code != 2 {
				t.Fatalf("%v: %d", wrong, r.Code)
			}
		}
		if r := c.Act("http:demo.write", post); r.Code() != wire.CodeOutcomeUnknown || len(up.Seen()) != 1 {
			t.Fatalf("after refused resolutions: %q, upstream saw %v", r.Code(), up.Seen())
		}
		b.Must("operation", "resolve", op.OperationID, said, "--note", "looked at the other side")
		var again Operation
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": post}), &again)
		if again.State != "executing" || again.OperationID == op.OperationID {
			t.Fatalf("the repeated request: %+v", again)
		}
		<-arrived
		if r := c.Act("http:demo.write", post); r.Code() != wire.CodeOutcomeUnknown {
			t.Fatalf("while that runs: %q", r.Code())
		}
		if seen := up.Seen(); len(seen) != 2 {
			t.Fatalf("upstream saw %v", seen)
		}
		var shown wire.OperationShown
		b.Must("operation", "show", op.OperationID, "--json").JSON(t, &shown)
		if shown.State != "indeterminate" || shown.ResolvedRow == 0 || len(shown.Rows) != 3-1 {
			t.Fatalf("shown: %+v", shown)
		}
		var row Row
		json.Unmarshal(shown.Rows[len(shown.Rows)-1], &row)
		var request struct {
			Happened bool
			Note     string
		}
		json.Unmarshal(row.Request, &request)
		if row.Kind != "operation.resolved" || request.Happened != (said == "--happened") || request.Note != "looked at the other side" {
			t.Errorf("the row: %s %s", row.Kind, row.Request)
		}
		for _, id := range []string{op.OperationID, "op_nothing"} {
			if r := b.Run("operation", "resolve", id, said); r.Code != 1 {
				t.Errorf("%s once more: %d %s", id, r.Code, r.Stderr)
			}
		}
		if r := b.RunPlain("operation", "show", op.OperationID); r.Code != 1 {
			t.Errorf("shown to somebody without a proof: %s", r.Stdout)
		}
	}
}
