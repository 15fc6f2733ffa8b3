package suspend

import "golang.org/x/sys/unix"

// The clock that stands still while the machine sleeps, and the one that goes
// on: clock_gettime(3). The second has another meaning on Linux.
const (
	awakeClock = unix.CLOCK_UPTIME_RAW
	everClock  = unix.CLOCK_MONOTONIC
)
