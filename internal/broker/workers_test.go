package broker

import (
	"runtime"
	"sync"
	"testing"
)

// TestWorkersNeverWait: each function runs although all that came before it are
// busy, more of them than may wait for work, and the end lets go of those that do.
func TestWorkersNeverWait(t *testing.T) {
	const busy = 2 * maxIdleWorkers
	before := runtime.NumGoroutine()
	stop := make(chan struct{})
	w := newWorkers(stop)
	for range 2 {
		var all sync.WaitGroup
		all.Add(busy)
		for range busy {
			w.do(func() {
				all.Done()
				all.Wait() // for those that come after it too
			})
		}
		all.Wait()
	}
	close(stop)
	for runtime.NumGoroutine() > before {
		runtime.Gosched()
	}
}
