package yetttest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// TestC9_TheAnswerArrivesThoughTheClientStillWrites: a client that is refused in
// the middle of a long write can end it, reads why, and then the end of the
// stream: neither a broken pipe nor a reset connection.
func TestC9_TheAnswerArrivesThoughTheClientStillWrites(t *testing.T) {
	b := Start(t, "")
	long := append(bytes.Repeat([]byte{'x'}, 4*wire.MaxFrame), '\n')
	behind := append([]byte("no JSON\n"), bytes.Repeat([]byte(`{"jsonrpc":"2.0","id":1,"method":"broker.status","params":{"request":{}}}`+"\n"), 50)...)
	for name, c := range map[string]struct {
		sent []byte
		code string
	}{
		"too long":              {long, wire.CodeFrameTooLarge},
		"requests behind a bad": {behind, wire.CodeProtocolError},
	} {
		ch := b.Open()
		conn := ch.Conn()
		conn.SetDeadline(time.Now().Add(Patience))
		if _, err := conn.Write(c.sent); err != nil {
			t.Errorf("%s: writing: %v", name, err)
		}
		if r, ok := ch.Read(); !ok || r.Code() != c.code {
			t.Errorf("%s: answered %v %q, want %q", name, ok, r.Code(), c.code)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: after the answer: %d bytes, %v", name, n, err)
		}
	}
}

// TestC9_HalfAClosedSocketIsAnswered: a script that has written everything closes
// its half of the socket and reads the answers.
func TestC9_HalfAClosedSocketIsAnswered(t *testing.T) {
	b := Start(t, "")
	for range 20 {
		ch := b.Dial()
		ch.Conn().SetDeadline(time.Now().Add(Patience))
		ch.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol_min":1,"protocol_max":1,"program":"test","version":"0","role":"native"}}` + "\n" +
			`{"jsonrpc":"2.0","id":2,"method":"broker.status","params":{"request":{}}}` + "\n"))
		if err := ch.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if r, ok := ch.Read(); !ok || r.Error != nil {
				t.Fatalf("answered %v %q", ok, r.Code())
			}
		}
	}
}

// TestE2_AStopTellsWhoWaitsForAnAction: the broker is told to stop while an action
// is out that gets no answer. Its caller is told what is known, then the channel
// closes; the channel of somebody who waits for nothing closes at once.
func TestE2_AStopTellsWhoWaitsForAnAction(t *testing.T) {
	arrived := make(chan struct{}, 1)
	up := StartUpstreamFunc(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	b := Start(t, up.Access(), "demo", canary)
	idle, c := b.Open(), b.Granted("http:demo.write")
	frame, err := wire.EncodeRequest(100, wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write",
		"action": map[string]any{"method": "POST", "path": "/v1/hold"}, "wait_ms": 50_000}))
	if err != nil {
		t.Fatal(err)
	}
	c.Write(frame)
	<-arrived
	began := time.Now()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.Stop()
	}()
	if _, ok := idle.Read(); ok || time.Since(began) > time.Second {
		t.Errorf("the idle channel: closed %v, after %v", !ok, time.Since(began))
	}
	r, ok := c.Read()
	var op Operation
	if !ok || json.Unmarshal(r.Result, &op) != nil || op.State != "indeterminate" {
		t.Errorf("who waits for the action was told %v %+v", ok, r)
	}
	if _, ok := c.Read(); ok {
		t.Error("the channel stays open")
	}
	<-stopped
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
}
