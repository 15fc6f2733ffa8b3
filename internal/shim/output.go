package shim

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// output writes whole lines to the agent. After the first failure, and after
// seal, no line is begun.
type output struct {
	w      io.Writer
	turn   chan struct{} // capacity 1: held while writing
	failed chan struct{} // closed at the first failure
	sealed atomic.Bool
	moved  atomic.Int64 // grows while a line is being taken
}

// piece is how much is written at once, so that progress can be seen.
const piece = 64 << 10

var errOutputClosed = errors.New("the agent no longer reads")

func newOutput(w io.Writer) *output {
	return &output{w: w, turn: make(chan struct{}, 1), failed: make(chan struct{})}
}

// line writes one JSON message.
func (o *output) line(message []byte) error {
	b := append(oneLine(message), '\n')
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	if o.sealed.Load() {
		return errOutputClosed
	}
	for len(b) > 0 {
		n, err := o.w.Write(b[:min(len(b), piece)])
		if err != nil {
			o.sealed.Store(true)
			close(o.failed)
			return err
		}
		b = b[n:]
		o.moved.Add(1)
	}
	return nil
}

// seal keeps everybody from beginning a line, and lets the one that is being
// written come to its end for as long as the agent goes on taking it: it gives
// up when nothing moved for patience, and after 50 times that in any case.
func (o *output) seal(patience time.Duration) {
	o.sealed.Store(true)
	for range 50 {
		moved := o.moved.Load()
		select {
		case o.turn <- struct{}{}:
			return
		case <-time.After(patience):
			if o.moved.Load() == moved {
				return
			}
		}
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
