//go:build !linux && !darwin

package selftest

import "errors"

func ofSystem() []trial { return nil }

// playLaunched refuses: there is no launchd.
func playLaunched() error { return errors.New("launchd is macOS's") }
