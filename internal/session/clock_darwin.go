package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot reads CLOCK_MONOTONIC, which goes on while a Mac sleeps
// (clock_gettime(3)), unlike the clock of the same name on Linux.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("reading CLOCK_MONOTONIC: " + err.Error()) // exists since macOS 10.12
	}
	return time.Duration(ts.Nano())
}
