//go:build !linux

package doctor

import (
	"errors"
	"time"
)

var errUnsupported = errors.New("not told on this system")

// startOf is when a process started.
func startOf(int) (time.Time, error) { return time.Time{}, errUnsupported }
func serviceFinding(int) Finding     { return weaker("service", errUnsupported.Error(), UnknownService) }
func closedFindings(int, string) []Finding {
	return []Finding{weaker("memory", errUnsupported.Error(), SystemUnknown)}
}
func systemFindings(_ *Running) []Finding { return []Finding{kernelFinding()} }
