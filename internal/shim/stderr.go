package shim

import (
	"io"
	"time"
)

// notes writes to standard error without ever waiting for who should read it:
// a host that lets that pipe fill up must not stop its calls or our end.
// What does not fit is lost.
type notes struct {
	queue chan []byte
	done  chan struct{}
}

// newNotes returns notes on w.
func newNotes(w io.Writer) *notes {
	n := &notes{queue: make(chan []byte, 64), done: make(chan struct{})}
	go n.run(w)
	return n
}

func (n *notes) run(w io.Writer) {
	broken := false
	for b := range n.queue {
		if b == nil { // flush
			close(n.done)
			return
		}
		if !broken {
			_, err := w.Write(b)
			broken = err != nil
		}
	}
}

// Write queues one note.
func (n *notes) Write(b []byte) (int, error) {
	select {
	case n.queue <- append([]byte{}, b...):
	default:
	}
	return len(b), nil
}

// flush waits at most wait until what is queued is written. It is the end:
// later notes are lost.
func (n *notes) flush(wait time.Duration) {
	timeout := time.After(wait)
	select {
	case n.queue <- nil:
	case <-timeout:
		return
	}
	select {
	case <-n.done:
	case <-timeout:
	}
}
