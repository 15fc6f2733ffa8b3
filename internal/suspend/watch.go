package suspend

import (
	"log/slog"
	"time"
)

// look is how often the clocks are compared, and the screen is looked at.
const look = time.Second

// Options are what Watch needs.
type Options struct {
	Bus    string // the path of the system bus's socket; Linux only
	Log    *slog.Logger
	Sleep  func() // called before the machine sleeps; it returns when the machine may; on macOS nil where nobody wants to know
	Screen func() // called when the screen was locked; nil where nobody wants to know
}

// watcher is what the systems have in common. It belongs to one goroutine.
type watcher struct {
	log   *slog.Logger
	sleep func()
	clock func() time.Duration // how long the machine has slept since it started

	known     time.Duration   // how much of that is dealt with
	announced bool            // sleep was called for a sleep that has not ended
	well      bool            // the log says that all is well
	said      map[string]bool // what the log says of what is not
}

func newWatcher(o Options) watcher {
	return watcher{log: o.Log, sleep: o.Sleep, clock: asleep, said: map[string]bool{}}
}

func (w *watcher) announce() {
	w.log.Info("the machine is about to sleep")
	w.sleep()
	w.announced = true
}

// lookAtClocks notices a sleep that nobody announced.
func (w *watcher) lookAtClocks() {
	now := w.clock()
	if now-w.known < look/2 {
		return
	}
	w.known = now
	if !w.announced {
		w.log.Warn("the machine has slept and nobody announced it")
		w.sleep()
	}
}

// complain logs what is new: a bus that stays away is no news each time.
func (w *watcher) complain(text string, err error) {
	if !w.said[text] {
		w.log.Warn(text, "error", err)
	}
	w.said[text], w.well = true, false
}
