//go:build !linux

package doctor

import (
	"errors"
	"time"
)

var errUnsupported = errors.New("not told on this system")

// Started is when a process started.
func Started(int) (time.Time, error) { return time.Time{}, errUnsupported }
func serviceFinding(int) Finding     { return weaker("service", errUnsupported.Error(), UnknownService) }
func memoryFindings(int) []Finding {
	return []Finding{weaker("memory", errUnsupported.Error(), SystemUnknown)}
}
func systemFindings(_ *Running) []Finding { return []Finding{kernelFinding()} }
