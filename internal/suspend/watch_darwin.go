package suspend

import (
	"context"
	"time"

	"github.com/yett-broker/yett/internal/macos/system"
)

// CanNoticeScreen reports that a locked screen is noticed on macOS.
func CanNoticeScreen() bool { return true }

// Watch calls o.Sleep each time that the machine is about to sleep, and lets it
// sleep when Sleep has returned; after a sleep that nobody announced it calls it
// late. It calls o.Screen when the screen was locked. It returns when ctx ends.
func Watch(ctx context.Context, o Options) {
	w := &powerWatcher{watcher: newWatcher(o), system: &macSystem{}, screen: o.Screen}
	if o.Screen != nil {
		tick := time.NewTicker(look)
		defer tick.Stop()
		go w.followScreen(ctx, o.Log, tick.C)
	}
	if o.Sleep == nil {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	w.run(ctx, tick.C)
}

// macSystem asks macOS's libraries, each opened when it is first needed.
type macSystem struct{ screen *system.Screen }

func (*macSystem) Hear(hear func(sleeping bool, allow func())) (stop func(), err error) {
	p, err := system.OpenPower(system.IOKit, system.LibSystem)
	if err != nil {
		return nil, err
	}
	return p.Hear(hear)
}

func (s *macSystem) ScreenLocked() (locked bool, err error) {
	if s.screen == nil {
		if s.screen, err = system.OpenScreen(system.CoreGraphics, system.CoreFoundation); err != nil {
			return false, err
		}
	}
	return s.screen.Locked()
}
