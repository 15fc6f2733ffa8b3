package suspend

import "golang.org/x/sys/unix"

// The clock that stands still while the machine sleeps, and the one that goes
// on: clock_gettime(2).
const (
	awakeClock = unix.CLOCK_MONOTONIC
	everClock  = unix.CLOCK_BOOTTIME
)
