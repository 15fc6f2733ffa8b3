package yetttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// TestC14_FloodOfCardsIsNotANo: a caller that asks faster than cards are filed
// is told so, and not that a person refused.
func TestC14_FloodOfCardsIsNotANo(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.each")
	const asked = 150 // more than may wait
	for i := range asked {
		frame, err := wire.EncodeRequest(int64(1000+i), wire.MethodActionRequest, c.Next(map[string]any{
			"capability": "http:demo.each", "action": map[string]any{"method": "POST", "path": fmt.Sprintf("/each/%d", i)}}))
		if err != nil {
			t.Fatal(err)
		}
		c.Write(frame)
	}
	got := map[string]int{}
	for range asked {
		r, ok := c.Read()
		if !ok || r.Error != nil {
			t.Fatalf("%v %+v", ok, r.Error)
		}
		var op Operation
		json.Unmarshal(r.Result, &op)
		word := op.State
		if op.Reason != nil {
			word += " " + op.Reason.Code
		}
		got[word]++
	}
	if got["queued"] < 20 || got["denied no_approver"] == 0 || got["queued"]+got["denied no_approver"] != asked {
		t.Fatalf("%v", got)
	}
}

// TestC9_RefusalsAtOnce: refusals that are made beside one another are each
// answered, and recorded at most twenty a second.
func TestC9_RefusalsAtOnce(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Open()
	c.OpenSession()
	before := len(b.Activity())
	const asked = 200
	for i := range asked {
		method, params := wire.MethodOperationGet, c.Next(map[string]any{"operation_id": "op_none"}) // refused beside the reader
		if i%2 == 0 {
			method, params = "no.such.method", map[string]any{} // refused by the reader
		}
		frame, err := wire.EncodeRequest(int64(1000+i), method, params)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(frame)
	}
	for range asked {
		if r, ok := c.Read(); !ok || (r.Code() != wire.CodeBadRequest && r.Code() != wire.CodeSequenceInvalid) {
			t.Fatalf("%v %s", ok, r.Code())
		}
	}
	if n := len(b.Activity()) - before; n < 20 || n >= asked {
		t.Fatalf("%d rows of %d refusals", n, asked)
	}
	noRace(t, b)
}

// noRace wants that the race detector, where the broker was built with it, had
// nothing to say.
func noRace(t *testing.T, b *Broker) {
	t.Helper()
	if bytes.Contains(b.Printed(), []byte("DATA RACE")) {
		t.Error("the broker has a data race")
	}
}

// TestReplyFitsAFrame: an upstream cannot make a reply that its reader must
// refuse.
func TestReplyFitsAFrame(t *testing.T) {
	up := StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 60 {
			w.Header().Set(fmt.Sprintf("X-Long-%02d", i), strings.Repeat("<", 4000))
		}
		fmt.Fprint(w, "short")
	})
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read")
	op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
	var res wire.HTTPResult
	json.Unmarshal(op.Result, &res)
	if op.State != "completed" || res.Size != 5 || len(res.Headers) == 0 {
		t.Fatalf("%s %d headers", op.State, len(res.Headers))
	}
}

// TestH1_IdsAreUnguessable: ids and nonces carry at least 128 bits and none
// comes twice.
func TestH1_IdsAreUnguessable(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	seen := map[string]bool{}
	for range 50 {
		c := b.Open()
		c.OpenSession()
		for _, id := range []string{c.Hello.Nonce, c.Hello.ChannelID, c.Session.SessionID} {
			_, random, _ := strings.Cut(id, "_")
			if len(random) < 26 || seen[id] { // base 32: 26 characters are 130 bits
				t.Fatalf("%q is short or was seen before", id)
			}
			seen[id] = true
		}
		c.Conn().Close()
	}
}

// TestC9_ByteByByte: a message is a line, however it arrives, and the reply
// comes although the line before it was cut off in the middle of a write.
func TestC9_ByteByByte(t *testing.T) {
	b := New(t)
	b.Serve()
	c := b.Dial()
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol_min":1,"protocol_max":1,"program":"p","version":"v","role":"native"}}` + "\n")
	for i := range line {
		c.Write(line[i : i+1])
	}
	if r, ok := c.Read(); !ok || r.Error != nil {
		t.Fatalf("%v %+v", ok, r.Error)
	}
	two := bytes.Repeat([]byte(`{"jsonrpc":"2.0","id":2,"method":"broker.status","params":{"request":{}}}`+"\n"), 3)
	c.Write(two[:100])
	if r, ok := c.Read(); !ok || r.Error != nil {
		t.Fatalf("%v %+v", ok, r.Error)
	}
	c.Write(two[100:])
	for range 2 {
		if r, ok := c.Read(); !ok || r.Error != nil {
			t.Fatalf("%v %+v", ok, r.Error)
		}
	}
}

// TestH5_OneNonceOneSession: of many openings with one nonce at the same moment
// one gets the session.
func TestH5_OneNonceOneSession(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Open()
	const asked = 50
	var all []byte
	for i := range asked {
		frame, err := wire.EncodeRequest(int64(1000+i), wire.MethodSessionOpen, wire.SessionOpen{Nonce: c.Hello.Nonce, Capabilities: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, frame...)
	}
	c.Write(all)
	opened := 0
	for range asked {
		r, ok := c.Read()
		switch {
		case !ok:
			t.Fatal("the channel closed")
		case r.Error == nil:
			opened++
		case r.Code() != wire.CodeWrongChannel:
			t.Fatalf("%s", r.Code())
		}
	}
	if opened != 1 {
		t.Fatalf("%d sessions on one nonce", opened)
	}
}
