//go:build !linux && !darwin

package ledger

import (
	"fmt"
	"os"
	"runtime"
)

type place struct{ dir string }

func (*place) database() string { return "" }

func (*place) journal() string { return "" }

func (*place) openJournal() (*os.File, error) { return nil, os.ErrNotExist }

func (*place) hasJournal() bool { return false }

func (*place) release() error { return nil }

func claimPlace(string) (*place, error) {
	return nil, fmt.Errorf("a ledger cannot be kept private and locked on %s", runtime.GOOS)
}
