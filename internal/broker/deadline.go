package broker

import "time"

// deadline is one wait that is shared by several steps: the whole of wait_ms
// bounds the decision and the execution together.
type deadline struct {
	c     <-chan time.Time
	timer *time.Timer
	end   time.Time
}

func newDeadline(waitMS int64) deadline {
	d := time.Duration(waitMS) * time.Millisecond
	t := time.NewTimer(d)
	return deadline{t.C, t, time.Now().Add(d)}
}

func (d deadline) leftMS() int64 { return time.Until(d.end).Milliseconds() }

func (d deadline) stop() { d.timer.Stop() }
