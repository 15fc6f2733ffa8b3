//go:build !linux

package notify

import (
	"context"
	"log/slog"
)

// SessionBus is where the account's session bus listens.
func SessionBus() string { return "" }

// Watch says that this system's desktop is told nothing.
func Watch(ctx context.Context, _ string, log *slog.Logger, _ Source) {
	log.Debug("no notification is shown on this system")
	<-ctx.Done()
}
