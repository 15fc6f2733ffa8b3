//go:build !linux && !darwin

package suspend

import (
	"context"
	"time"
)

// CanNoticeScreen reports that a locked screen is not noticed on this system.
func CanNoticeScreen() bool { return false }

// Watch says that sleep is not noticed on this system.
func Watch(_ context.Context, o Options) {
	o.Log.Warn("sleep is not noticed on this system: lock before the machine sleeps")
}

// asleep is not known here.
func asleep() time.Duration { return 0 }
