package yetttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// Channel is a raw connection to the broker: what is sent is exactly what the
// test says. The process that makes it is the caller.
type Channel struct {
	b    *Broker
	conn *endpoint.Conn
	in   *wire.FrameReader
	id   int64
	seq  int64

	Hello   wire.HelloResult
	Session wire.SessionResult
	Got     bytes.Buffer // every byte that came
}

// Reply is a decoded reply.
type Reply struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	} `json:"error"`
}

// Code is the name of the error, or "".
func (r Reply) Code() string {
	if r.Error == nil {
		return ""
	}
	s, _ := r.Error.Data["code"].(string)
	return s
}

// Dial connects without saying anything.
func (b *Broker) Dial() *Channel {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := endpoint.Dial(ctx, b.Location())
	if err != nil {
		b.T.Fatalf("connecting to the broker: %v", err)
	}
	c := &Channel{b: b, conn: conn}
	c.in = wire.NewFrameReader(io.TeeReader(conn, &c.Got))
	b.T.Cleanup(func() { conn.Close() })
	return c
}

// Open connects and says hello as a native client.
func (b *Broker) Open() *Channel {
	b.T.Helper()
	c := b.Dial()
	c.SayHello()
	return c
}

// SayHello says hello as a native client.
func (c *Channel) SayHello() {
	c.b.T.Helper()
	c.Must(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": "test", "version": "0", "role": "native"}, &c.Hello)
}

// Conn is the connection itself.
func (c *Channel) Conn() net.Conn { return c.conn }

// Write sends bytes as they are.
func (c *Channel) Write(p []byte) {
	c.b.T.Helper()
	c.conn.SetWriteDeadline(time.Now().Add(Patience))
	if _, err := c.conn.Write(p); err != nil {
		c.b.T.Logf("writing to the broker: %v", err)
	}
}

// Read returns the next reply; ok is false when the broker closed the channel.
func (c *Channel) Read() (r Reply, ok bool) {
	c.b.T.Helper()
	c.conn.SetReadDeadline(time.Now().Add(Patience))
	line, err := c.in.Next()
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		c.b.T.Fatal("the broker did not answer")
	}
	if err != nil {
		return Reply{}, false
	}
	if err := json.Unmarshal(line, &r); err != nil {
		c.b.T.Fatalf("the reply is not JSON: %v\n%s", err, line)
	}
	return r, true
}

// Send sends one line and returns the reply.
func (c *Channel) Send(line string) (Reply, bool) {
	c.b.T.Helper()
	c.Write([]byte(line + "\n"))
	return c.Read()
}

// Call sends a request and returns its reply.
func (c *Channel) Call(method string, params any) Reply {
	c.b.T.Helper()
	c.id++
	frame, err := wire.EncodeRequest(c.id, method, params)
	if err != nil {
		c.b.T.Fatal(err)
	}
	c.Write(frame)
	for {
		r, ok := c.Read()
		if !ok {
			c.b.T.Fatalf("%s: the broker closed the channel", method)
		}
		if string(r.ID) == fmt.Sprint(c.id) || string(r.ID) == "null" {
			return r
		}
	}
}

// Must sends a request and wants a result.
func (c *Channel) Must(method string, params, result any) {
	c.b.T.Helper()
	r := c.Call(method, params)
	if r.Error != nil {
		c.b.T.Fatalf("%s: %s: %s", method, r.Code(), r.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(r.Result, result); err != nil {
			c.b.T.Fatalf("%s: %v\n%s", method, err, r.Result)
		}
	}
}

// OpenSession opens the session of the channel.
func (c *Channel) OpenSession(capabilities ...string) {
	c.b.T.Helper()
	c.Must(wire.MethodSessionOpen, map[string]any{"nonce": c.Hello.Nonce, "capabilities": append([]string{}, capabilities...)}, &c.Session)
}

// Next is a set of parameters with the session and the next number in it.
func (c *Channel) Next(more map[string]any) map[string]any {
	c.seq++
	p := map[string]any{"session_id": c.Session.SessionID, "sequence": c.seq}
	for k, v := range more {
		p[k] = v
	}
	return p
}

// Operation is a decoded result of action.request and operation.get.
type Operation struct {
	OperationID string          `json:"operation_id"`
	Sequence    int64           `json:"sequence"`
	State       string          `json:"state"`
	Result      json.RawMessage `json:"result"`
	Reason      *wire.Reason    `json:"reason"`
	Pending     *wire.Pending   `json:"pending"`
	Activity    string          `json:"activity"`
}

// Act asks for one action and waits for its end.
func (c *Channel) Act(capability string, action map[string]any) Reply {
	c.b.T.Helper()
	return c.Call(wire.MethodActionRequest, c.Next(map[string]any{"capability": capability, "action": action, "wait_ms": 30_000}))
}

// MustAct is Act with a result.
func (c *Channel) MustAct(capability string, action map[string]any) Operation {
	c.b.T.Helper()
	r := c.Act(capability, action)
	if r.Error != nil {
		c.b.T.Fatalf("action: %s: %s", r.Code(), r.Error.Message)
	}
	var op Operation
	if err := json.Unmarshal(r.Result, &op); err != nil {
		c.b.T.Fatal(err)
	}
	return op
}

// Granted opens a channel whose session was granted capabilities for an hour.
func (b *Broker) Granted(capabilities ...string) *Channel {
	b.T.Helper()
	c := b.Open()
	c.OpenSession(capabilities...)
	b.Approve(b.WaitCard(), "--for", "1h")
	c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), &c.Session)
	if c.Session.State != "active" || len(c.Session.Capabilities) != len(capabilities) {
		b.T.Fatalf("not granted: %+v", c.Session)
	}
	return c
}
