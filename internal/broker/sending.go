package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/session"
)

const (
	// answerGrace is how long the answer to what was sent is awaited after its
	// session ended.
	answerGrace = 5 * time.Second
	// leaveGrace is how long a request may take to leave after that.
	leaveGrace = 50 * time.Millisecond
	// stopAnswerGrace is the same for a broker that stops: it has 5 s for
	// everything.
	stopAnswerGrace = 2 * time.Second
)

// sending is the time that one execution has. Before its first byte it ends with
// its session, or when that is paused: nothing more is sent. A request that is
// half out has a moment to leave. Once it is out the executor takes back what the
// kernel still holds, if it holds something; what has left cannot be taken back,
// and the answer is still awaited for a grace, so that the outcome is learned. The
// executor's own deadline holds besides.
type sending struct {
	ctx     context.Context
	cancel  context.CancelFunc
	quiet   context.Context // done when it ended and everything was out by then: not a byte more leaves
	hush    context.CancelFunc
	release []func() bool

	mu    sync.Mutex
	phase phase
	ended bool // the session was ended or paused
}

type phase int

const (
	before phase = iota // nothing has left
	leaving
	out
)

var errEnded = errors.New("the session has ended or is paused")

func newSending(s *session.Session) *sending {
	d := &sending{}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.quiet, d.hush = context.WithCancel(context.Background())
	d.release = append(d.release,
		context.AfterFunc(s.Work(), d.end),
		context.AfterFunc(s.Context(), func() {
			grace := answerGrace
			if s.EndReason() == session.BrokerStopped {
				grace = stopAnswerGrace
			}
			d.cancelAfter(grace)
		}))
	return d
}

// end is the end or the pause of the session.
func (d *sending) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	switch d.phase {
	case before:
		d.cancel()
	case leaving:
		limit := time.AfterFunc(leaveGrace, d.cancelLeaving)
		context.AfterFunc(d.ctx, func() { limit.Stop() })
	case out:
		d.hush()
	}
}

func (d *sending) cancelLeaving() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.phase == leaving {
		d.cancel()
	}
}

// begin is asked right before the first byte: from its answer on the action may
// have happened.
func (d *sending) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return errEnded
	}
	d.phase = leaving
	return nil
}

// sent tells that the whole request has left.
func (d *sending) sent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.phase = out
	if d.ended {
		d.hush()
	}
}

// stopped reports whether the session ended before anything was sent.
func (d *sending) stopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

func (d *sending) cancelAfter(grace time.Duration) {
	limit := time.AfterFunc(grace, d.cancel)
	context.AfterFunc(d.ctx, func() { limit.Stop() })
}

// done gives up what the execution held.
func (d *sending) done() {
	for _, stop := range d.release {
		stop()
	}
	d.cancel()
	d.hush()
}
