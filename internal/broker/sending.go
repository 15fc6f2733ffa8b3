package broker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/yett-broker/yett/internal/session"
)

const (
	// answerGrace is how long the answer to what was sent is awaited after its
	// session ended.
	answerGrace = 5 * time.Second
	// stopAnswerGrace is the same for a broker that stops: it has 5 s for
	// everything.
	stopAnswerGrace = 2 * time.Second
)

// sending is the time that one execution has. Until its request is out it ends
// with its session, or when that is paused: nothing more is sent. From then on
// nothing can be taken back, and the answer is still awaited for a moment, so
// that the outcome is learned. The executor's own deadline holds besides.
type sending struct {
	ctx     context.Context
	cancel  context.CancelFunc
	out     atomic.Bool
	release []func() bool
}

func newSending(s *session.Session) *sending {
	d := &sending{}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.release = append(d.release, context.AfterFunc(s.Work(), func() {
		if !d.out.Load() {
			d.cancel()
		}
	}))
	d.release = append(d.release, context.AfterFunc(s.Context(), func() {
		grace := answerGrace
		if s.EndReason() == session.BrokerStopped {
			grace = stopAnswerGrace
		}
		limit := time.AfterFunc(grace, d.cancel)
		context.AfterFunc(d.ctx, func() { limit.Stop() })
	}))
	return d
}

// sent tells that the whole request has left.
func (d *sending) sent() { d.out.Store(true) }

// done gives up what the execution held.
func (d *sending) done() {
	for _, stop := range d.release {
		stop()
	}
	d.cancel()
}
