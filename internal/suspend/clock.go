//go:build linux || darwin

package suspend

import (
	"time"

	"golang.org/x/sys/unix"
)

// asleep returns how long the machine has slept since it started: by so much
// the clock that counts sleep is ahead of the one that does not.
func asleep() (slept time.Duration) {
	for range 100 { // a delay between the readings would look like sleep
		before := read(awakeClock)
		ever := read(everClock)
		after := read(awakeClock)
		slept = ever - after
		if after-before < 10*time.Millisecond {
			break
		}
	}
	return slept
}

func read(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0 // both clocks are older than the kernels that serve
	}
	return time.Duration(t.Nano())
}
