package shim

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// output writes whole lines to the agent. After the first failure, and after
// seal, nothing more is written.
type output struct {
	w      io.Writer
	turn   chan struct{} // capacity 1: held while writing
	failed chan struct{} // closed at the first failure
	dead   bool          // guarded by turn
}

var errOutputClosed = errors.New("the agent no longer reads")

func newOutput(w io.Writer) *output {
	return &output{w: w, turn: make(chan struct{}, 1), failed: make(chan struct{})}
}

// line writes one JSON message.
func (o *output) line(message []byte) error {
	b := append(oneLine(message), '\n')
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	if o.dead {
		return errOutputClosed
	}
	if _, err := o.w.Write(b); err != nil {
		o.dead = true
		close(o.failed)
		return err
	}
	return nil
}

// seal lets a line that is being written come to its end, for at most wait,
// and then keeps everybody else from beginning one.
func (o *output) seal(wait time.Duration) {
	select {
	case o.turn <- struct{}{}:
	case <-time.After(wait):
	}
}

// Characters beyond '\n' at which programs split lines. In valid JSON they
// stand inside strings only, so the escape says the same.
var separators = []struct{ raw, escaped []byte }{
	{[]byte("\u2028"), []byte(`\u2028`)},
	{[]byte("\u2029"), []byte(`\u2029`)},
	{[]byte("\u0085"), []byte(`\u0085`)},
}

func oneLine(message []byte) []byte {
	for _, s := range separators {
		if bytes.Contains(message, s.raw) {
			message = bytes.ReplaceAll(message, s.raw, s.escaped)
		}
	}
	return message
}
