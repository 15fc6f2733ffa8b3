package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/internal/peer"
)

const (
	// quickTime is how long what was asked may take to be answered after the end
	// of standard input: a script closes it when it has asked everything.
	quickTime = 40 * time.Millisecond
	// settleTime is how long answers may take to leave after the rest was given up.
	settleTime = 40 * time.Millisecond
)

// maxLine is the longest message of an agent in bytes.
const maxLine = 8 << 20

// lineReader gives the agent's lines as peer.Stdio does: attributed is false
// for a line whose writer the kernel did not name, and a line may come
// together with io.ErrUnexpectedEOF when the stream ends without a newline.
type lineReader interface {
	ReadLine(limit int) (line []byte, attributed bool, err error)
}

// transport is the stdio hop: the only reader of the agent's lines and the
// only way to write one.
type transport struct {
	in   lineReader
	out  *output
	gate *gate

	lastLine func(error)   // called when no more lines come, with the reason
	ended    chan struct{} // closed when reading is over
	err      error         // why, nil at the end of the stream; set before ended
}

func newTransport(in lineReader, out *output) *transport {
	return &transport{in: in, out: out, gate: newGate(), lastLine: func(error) {}, ended: make(chan struct{})}
}

// Connect implements mcp.Transport.
func (t *transport) Connect(context.Context) (mcp.Connection, error) { return t, nil }

// SessionID implements mcp.Connection; stdio has none.
func (t *transport) SessionID() string { return "" }

// Close implements mcp.Connection. The process ends instead.
func (t *transport) Close() error { return nil }

// Read returns the next message that may pass. Every other line is answered
// here.
func (t *transport) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, attributed, err := t.in.ReadLine(maxLine)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.finish(err)
			return nil, io.EOF
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		m, refused := parse(line)
		if refused == nil && m.method == "" {
			continue // nothing was asked of the agent
		}
		if refused == nil {
			refused = t.gate.admit(m, attributed)
		}
		if refused != nil {
			if err := t.out.line(refused.encode()); err != nil {
				t.finish(nil)
				return nil, io.EOF
			}
			continue
		}
		if m.id == nil && !attributed && m.method != "notifications/initialized" {
			continue
		}
		req, err := m.request()
		if err != nil {
			t.finish(fmt.Errorf("passing on a message: %w", err))
			return nil, io.EOF
		}
		return req, nil
	}
}

// finish ends reading: what is nearly answered may still be answered, what waits
// for a person is given up.
func (t *transport) finish(err error) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if errors.Is(err, peer.ErrLineTooLong) {
		// The agent may be gone too; then there is nobody to tell.
		_ = t.out.line(invalid(nil, "the line is longer than %d MiB", maxLine>>20).encode())
	}
	t.err = err
	if err == nil {
		t.settle(quickTime)
	}
	t.lastLine(err)
	t.settle(settleTime)
	close(t.ended)
}

// settle waits a moment for the answers that are under way.
func (t *transport) settle(limit time.Duration) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-t.gate.drained():
	case <-timeout.C:
	}
}

// Write sends a message of the SDK.
func (t *transport) Write(_ context.Context, m jsonrpc.Message) error {
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	if resp, ok := m.(*jsonrpc.Response); ok {
		id, err := json.Marshal(resp.ID.Raw())
		if err != nil {
			return fmt.Errorf("encoding an answer: %w", err)
		}
		defer t.gate.answering(id)()
	}
	return t.out.line(b)
}
