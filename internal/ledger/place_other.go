//go:build !linux && !darwin

package ledger

import (
	"fmt"
	"runtime"
)

type place struct{}

func (*place) database() string { return "" }

func (*place) release() error { return nil }

func claimPlace(string) (*place, error) {
	return nil, fmt.Errorf("a ledger cannot be kept private and locked on %s", runtime.GOOS)
}
