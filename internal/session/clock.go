package session

import "time"

// SystemClock is the clock of the running system.
type SystemClock struct{}

// Now returns the wall clock.
func (SystemClock) Now() time.Time { return time.Now() }

// SinceBoot returns the time since boot, suspension included.
func (SystemClock) SinceBoot() time.Duration { return sinceBoot() }
