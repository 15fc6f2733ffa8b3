package peer

import (
	"fmt"

	"github.com/yett-broker/yett/internal/action"
)

// Ancestors returns the processes that led to p, nearest first, up to whoever
// adopts orphans. cut tells that the chain was not followed to its end. Each
// was held while it was looked at, and named by a child that was held too. A
// hidden program has no path.
func (p *Process) Ancestors() (chain []action.Ancestor, cut bool, err error) {
	l, err := p.lineage()
	if err != nil {
		return nil, false, fmt.Errorf("following the ancestors of process %d: %w", p.PID(), err)
	}
	for _, x := range l.line[1:] {
		chain = append(chain, action.Ancestor{PID: x.pid, ExePath: x.program})
	}
	return chain, l.cut, nil
}
