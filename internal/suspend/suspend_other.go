//go:build !linux

package suspend

import (
	"context"
	"log/slog"
)

// Watch says that sleep is not noticed on this system.
func Watch(_ context.Context, _ string, log *slog.Logger, _ func()) {
	log.Warn("sleep is not noticed on this system: lock before the machine sleeps")
}
