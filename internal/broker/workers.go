package broker

// maxIdleWorkers bounds the goroutines that wait for work.
const maxIdleWorkers = 64

// workers run functions beside their callers, on goroutines that stay for the
// next one: the stack of a new goroutine grows several times during one action,
// and each time all of it is copied.
type workers struct {
	work chan func()
	idle chan struct{} // has an element for each that waits, or is about to
	stop <-chan struct{}
}

func newWorkers(stop <-chan struct{}) *workers {
	return &workers{work: make(chan func()), idle: make(chan struct{}, maxIdleWorkers), stop: stop}
}

// do never waits: where nobody is idle there is a new goroutine.
func (w *workers) do(f func()) {
	select {
	case w.work <- f:
	default:
		go w.run(f)
	}
}

func (w *workers) run(f func()) {
	for {
		f()
		select {
		case w.idle <- struct{}{}:
		default:
			return // enough of them wait
		}
		select {
		case f = <-w.work:
			<-w.idle
		case <-w.stop:
			return
		}
	}
}
