//go:build !linux

package peer

import "github.com/yett-broker/yett/internal/action"

// Line refuses where the system gives no evidence.
func (p *Process) Line() ([]Name, error) { return nil, errMissing }

// Ancestors refuses where the system gives no evidence.
func (p *Process) Ancestors() (chain []action.Ancestor, cut bool, err error) {
	return nil, false, errMissing
}
