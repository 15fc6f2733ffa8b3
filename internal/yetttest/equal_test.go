package yetttest

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// TestOneYesIsForOneAction: equal requests that a client sends at once, each with
// a key of its own, are one operation. They would share a card, and what was
// allowed once would be done as often as it was asked for.
func TestOneYesIsForOneAction(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.each")
	const n = 8
	var together []byte
	for i := range n {
		frame, err := wire.EncodeRequest(int64(100+i), wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.each",
			"idempotency_key": string(rune('a' + i)), "wait_ms": 30_000, "action": get("/each/1")}))
		must(t, err)
		together = append(together, frame...)
	}
	c.Write(together)
	b.Approve(b.WaitCard())
	ids := map[string]bool{}
	for range n {
		r, ok := c.Read()
		var op Operation
		if !ok || r.Error != nil || json.Unmarshal(r.Result, &op) != nil || op.State != "completed" {
			t.Fatalf("%v %+v %+v", ok, r.Error, op)
		}
		ids[op.OperationID] = true
	}
	if seen := up.Seen(); len(seen) != 1 || len(ids) != 1 {
		t.Errorf("one yes: %d requests arrived, of %d operations", len(seen), len(ids))
	}
}

// TestEqualActionsThatWereEachApproved: two sessions of one process ask for equal
// actions, and a person allows both at once. One is done after the other; the
// second does not end as if the outcome of the first were unknown.
func TestEqualActionsThatWereEachApproved(t *testing.T) {
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	up := StartUpstreamFunc(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-answer
	})
	b := Start(t, up.Access(), "demo", canary)
	one, two := b.Granted("http:demo.each"), b.Granted("http:demo.each")
	ask := func(c *Channel, key string) (op Operation) {
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.each", "idempotency_key": key,
			"action": map[string]any{"method": "POST", "path": "/each/1", "body": "x"}}), &op)
		return op
	}
	get := func(c *Channel, op Operation, wait int) Operation {
		c.Must(wire.MethodOperationGet, c.Next(map[string]any{"operation_id": op.OperationID, "wait_ms": wait}), &op)
		return op
	}
	first, second := ask(one, "a"), ask(two, "b")
	for _, card := range b.waitCards(2) {
		b.Approve(card)
	}
	get(one, first, 0)
	select {
	case <-arrived:
	case <-time.After(Patience):
		t.Fatal("the first did not arrive")
	}
	if second = get(two, second, 0); second.State != "queued" {
		t.Errorf("while the first runs the second is %+v", second)
	}
	close(answer)
	first, second = get(one, first, 30_000), get(two, second, 30_000)
	if first.State != "completed" || second.State != "completed" || first.OperationID == second.OperationID {
		t.Errorf("the first is %s, the second %s (%+v)", first.State, second.State, second.Reason)
	}
	if seen := up.Seen(); len(seen) != 2 {
		t.Errorf("%d arrived", len(seen))
	}
}
