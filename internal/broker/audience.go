package broker

import (
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

const (
	// maxFollow is how long one question about changes may wait.
	maxFollow = 25 * time.Second
	// followGap is how long a follower may take between two questions.
	followGap = 3 * time.Second
)

// audience knows whether anybody would notice a card: a page of the console, a
// terminal that follows the queue, a desktop that takes notifications.
type audience struct {
	mu      sync.Mutex
	present int
	left    time.Duration // when the last one left, since boot
	ever    bool
}

// Noticing says that somebody would notice a card, until the returned function
// is called.
func (b *Broker) Noticing() (done func()) {
	a := &b.audience
	a.mu.Lock()
	defer a.mu.Unlock()
	a.present++
	a.ever = true
	var once sync.Once
	return func() {
		once.Do(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.present--
			a.left = b.Clock.SinceBoot()
		})
	}
}

// nobodyNotices reports whether a card is refused because nobody would see it.
func (b *Broker) nobodyNotices() bool {
	if !b.RequireApprover {
		return false
	}
	a := &b.audience
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.present == 0 && (!a.ever || b.Clock.SinceBoot()-a.left > followGap)
}

// waitCards answers when what waits has changed, or after a while.
func (o *operator) waitCards(r wire.ApprovalWait) (any, *wire.Error) {
	if r.WaitMS < 0 || r.WaitMS > maxFollow.Milliseconds() {
		return nil, wire.Errorf(wire.CodeBadRequest, "wait_ms must lie between 0 and %d.", maxFollow.Milliseconds())
	}
	defer o.b.Noticing()()
	end := time.NewTimer(time.Duration(r.WaitMS) * time.Millisecond)
	defer end.Stop()
	for {
		changed := o.b.queue.Changed()
		if n := o.b.queue.Changes(); n != r.Seen {
			return wire.ApprovalChanged{Changes: n}, nil
		}
		select {
		case <-changed:
		case <-end.C:
			return wire.ApprovalChanged{Changes: o.b.queue.Changes()}, nil
		case <-o.who.gone():
			return nil, wire.NewError(wire.CodeUnavailable)
		case <-o.b.stop:
			return nil, wire.NewError(wire.CodeUnavailable)
		}
	}
}

// FirstWaiting says how many cards wait, and of the first what everybody of the
// account may know.
func (b *Broker) FirstWaiting() (count int, first wire.Pending, capabilities []string) {
	items := b.queue.List()
	if len(items) == 0 {
		return 0, first, nil
	}
	return len(items), *b.pendingOf(items[0]), items[0].Capabilities
}
