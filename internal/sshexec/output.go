package sshexec

import (
	"context"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/bulk"
)

// After the exit status the streams may still be on their way, or a process in
// the background may hold them for good: they are closed once nothing came for
// quiet, and at the latest after lingering.
const (
	quiet     = time.Second
	lingering = 10 * time.Second
)

// output is the two streams of one command.
type output struct {
	stdout, stderr stream          // to be read after drained is closed
	arrived        <-chan struct{} // something came
	drained        <-chan struct{} // both streams ended
}

// stream is what is kept of one of them: its beginning, and when more came than
// that its end too.
type stream struct {
	kept  []byte
	total int64
	tail  ring
}

func (s *stream) truncated() bool { return s.total > int64(len(s.kept)) }

// ring keeps the last TailOutput bytes of what came after the beginning.
type ring struct {
	bytes []byte
	next  int // where the oldest byte stands, once the ring is full
}

func (r *ring) write(b []byte) {
	if len(b) > TailOutput {
		b = b[len(b)-TailOutput:]
	}
	fits := min(len(b), TailOutput-len(r.bytes))
	r.bytes = append(r.bytes, b[:fits]...)
	for b = b[fits:]; len(b) > 0; {
		n := copy(r.bytes[r.next:], b)
		b, r.next = b[n:], (r.next+n)%TailOutput
	}
}

// end returns the bytes in their order.
func (r *ring) end() []byte {
	return append(r.bytes[r.next:len(r.bytes):len(r.bytes)], r.bytes[:r.next]...)
}

// drainBoth begins to read both streams, each for itself and to its end.
func drainBoth(ch ssh.Channel, limit int64, session string) *output {
	arrived, drained := make(chan struct{}, 1), make(chan struct{})
	o := &output{arrived: arrived, drained: drained}
	var wg sync.WaitGroup
	wg.Go(func() { o.stdout.drain(ch, limit, bulk.Stream{Session: session}, arrived) })
	wg.Go(func() { o.stderr.drain(ch.Stderr(), limit, bulk.Stream{Session: session}, arrived) })
	go func() {
		wg.Wait()
		close(drained)
	}()
	return o
}

// drain keeps at most limit bytes, and the end. Past these it goes on reading,
// so that the command does not block on a full stream.
func (s *stream) drain(r io.Reader, limit int64, pace bulk.Stream, arrived chan<- struct{}) {
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		if n > 0 {
			pace.Came(n)
			keep := min(int64(n), limit-int64(len(s.kept)))
			s.kept = append(s.kept, chunk[:keep]...)
			s.tail.write(chunk[keep:n])
			s.total += int64(n)
			select {
			case arrived <- struct{}{}:
			default: // told already
			}
		}
		if err != nil {
			return
		}
	}
}

// settle gives the streams time to end after the command has.
func (o *output) settle(ctx context.Context) {
	last := time.NewTimer(lingering)
	defer last.Stop()
	idle := time.NewTimer(quiet)
	defer idle.Stop()
	for {
		select {
		case <-o.drained:
			return
		case <-o.arrived:
			idle.Reset(quiet)
		case <-idle.C:
			return
		case <-last.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (o *output) ended() bool {
	select {
	case <-o.drained:
		return true
	default:
		return false
	}
}
