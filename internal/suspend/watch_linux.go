package suspend

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// errLogindGone ends one connection when logind leaves or is replaced: a lock
// of the old one holds nothing up.
var errLogindGone = errors.New("logind has left the bus")

// CanNoticeScreen reports that a locked screen is not noticed on Linux.
func CanNoticeScreen() bool { return false }

// Watch calls o.Sleep each time that the machine is about to sleep, and lets it
// sleep when Sleep has returned; after a sleep that nobody announced it calls it
// late. It returns when ctx ends.
func Watch(ctx context.Context, o Options) {
	(&busWatcher{watcher: newWatcher(o), bus: o.Bus}).run(ctx)
}

// busWatcher hears of sleep on the system's bus.
type busWatcher struct {
	watcher
	bus string
}

// run follows the bus until ctx ends, through as many connections as it takes.
func (w *busWatcher) run(ctx context.Context) {
	w.known = w.clock()
	tick := time.NewTicker(look)
	defer tick.Stop()
	wait := firstRetry
	for {
		began := time.Now()
		err := w.follow(ctx, tick.C)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastRetry {
			wait = firstRetry // it was well for a while
		}
		w.announced = false // nobody will say that it has ended
		w.complain("a sleep of the machine is noticed only afterwards", err)
		for again := time.After(wait); again != nil; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.lookAtClocks()
			case <-again:
				again = nil
			}
		}
		wait = min(2*wait, lastRetry)
	}
}

// follow keeps one connection until it breaks, logind leaves, or ctx ends.
func (w *busWatcher) follow(ctx context.Context, tick <-chan time.Time) error {
	l, err := listen(ctx, w.bus)
	if err != nil {
		return err
	}
	defer l.close()
	lock := w.delay(ctx)
	defer func() { lock.Close() }() // a nil file says so and does nothing

	// The machine may have begun to fall asleep before there was a lock.
	preparing, err := l.preparing(ctx)
	if err != nil {
		return err
	}
	if preparing {
		w.announce()
		lock.Close()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.gone:
			return errLogindGone
		case <-l.Context().Done():
			return errors.New("the system's bus closed the connection")
		case <-tick:
			w.lookAtClocks()
		case sleeping := <-l.sleep:
			if sleeping {
				w.announce()
				lock.Close() // not before the broker has paused
				continue
			}
			w.known, w.announced = w.clock(), false
			lock.Close()
			lock = w.delay(ctx)
		}
	}
}

// delay takes the lock without which the machine does not wait for the broker.
// Where that fails the signal is heard all the same, perhaps too late.
func (w *busWatcher) delay(ctx context.Context) *os.File {
	lock, err := inhibit(ctx, w.bus)
	if err != nil {
		w.complain("the machine does not wait for Yett before it sleeps", err)
		return nil
	}
	if !w.well {
		w.log.Info("locking before the machine sleeps")
		w.well = true
		clear(w.said)
	}
	return lock
}
