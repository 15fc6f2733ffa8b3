package peer

import (
	"fmt"
	"slices"

	"github.com/yett-broker/yett/internal/action"
)

// Ancestors returns the processes that led to p, nearest first, up to whoever
// adopts orphans. cut tells that the chain was not followed to its end. What
// it names lived when it was read: the chain is walked before and after.
func (p *Process) Ancestors() (chain []action.Ancestor, cut bool, err error) {
	for range 3 {
		before, err := p.lineage()
		if err != nil {
			return nil, false, fmt.Errorf("following the ancestors of process %d: %w", p.PID(), err)
		}
		chain = nil
		for _, x := range before.line[1:] {
			img, _ := readImage(x.pid) // a hidden program has no path
			chain = append(chain, action.Ancestor{PID: x.pid, ExePath: img.path})
		}
		after, err := p.lineage()
		if err != nil {
			return nil, false, fmt.Errorf("following the ancestors of process %d: %w", p.PID(), err)
		}
		if slices.EqualFunc(before.line, after.line, ancestor.is) {
			return chain, before.cut, nil
		}
	}
	return nil, true, nil // it keeps changing
}
