package suspend

import (
	"context"
	"log/slog"
	"time"
)

// powerSystem is what macOS says of sleep and of the screen.
type powerSystem interface {
	// Hear calls hear before each sleep, which waits until allow is called, and
	// after each waking, with an allow that does nothing. After stop no call
	// begins, and nobody waits for an allow.
	Hear(hear func(sleeping bool, allow func())) (stop func(), err error)
	// ScreenLocked reports whether the screen is locked now. The program that
	// draws the windows is asked, which may be slow.
	ScreenLocked() (bool, error)
}

// powerWatcher hears of sleep from macOS itself.
type powerWatcher struct {
	watcher
	system powerSystem
	screen func() // nil where nobody wants to know
}

// notice is one word of the system about sleep.
type notice struct {
	sleeping bool
	allow    func()
}

// run follows the system until ctx ends. tick is when it looks by itself.
func (w *powerWatcher) run(ctx context.Context, tick <-chan time.Time) {
	w.known = w.clock()
	notices := make(chan notice, 8)
	stop, err := w.system.Hear(func(sleeping bool, allow func()) {
		select {
		case notices <- notice{sleeping, allow}:
		case <-ctx.Done():
			allow()
		}
	})
	if err != nil {
		w.complain("a sleep of the machine is noticed only afterwards", err)
		stop = func() {}
	} else {
		w.log.Info("locking before the machine sleeps")
	}
	defer func() { // a sleep that is announced just now does not wait for nobody
		stop()
		for {
			select {
			case n := <-notices:
				n.allow()
			default:
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			w.lookAtClocks()
		case n := <-notices:
			if n.sleeping {
				w.announce()
			} else {
				w.known, w.announced = w.clock(), false
			}
			n.allow() // not before the broker has paused
		}
	}
}

// followScreen calls w.screen each time that the screen was locked, until ctx
// ends. It runs beside run, which must not wait for an answer about the screen.
func (w *powerWatcher) followScreen(ctx context.Context, log *slog.Logger, tick <-chan time.Time) {
	was, said := false, false
	for {
		locked, err := w.system.ScreenLocked()
		switch {
		case err != nil && !said:
			log.Warn("a locked screen is not noticed", "error", err)
			said = true
		case err != nil: // it stays what it was
		default:
			if locked && !was {
				log.Info("the screen was locked")
				w.screen()
			}
			was, said = locked, false
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}
