package broker

import (
	"log/slog"
	"slices"
	"sync"
)

// unwritten are the outcomes that were handed to the ledger and not looked after
// yet. No goroutine waits for each of them: there is one for every action, and
// nearly all are written a few milliseconds later.
type unwritten struct {
	mu   sync.Mutex
	list []unwrittenOutcome
}

type unwrittenOutcome struct {
	operation string
	written   <-chan error // gets one result
}

func (u *unwritten) add(operation string, written <-chan error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, unwrittenOutcome{operation, written})
}

// look forgets those that are decided and tells of those that could not be
// written.
func (u *unwritten) look(log *slog.Logger) {
	lost := map[string]error{}
	u.mu.Lock()
	u.list = slices.DeleteFunc(u.list, func(o unwrittenOutcome) bool {
		select {
		case err := <-o.written:
			if err != nil {
				lost[o.operation] = err
			}
			return true
		default:
			return false
		}
	})
	u.mu.Unlock()
	for operation, err := range lost {
		log.Error("an action happened and its outcome could not be recorded", "operation", operation, "error", err)
	}
}
