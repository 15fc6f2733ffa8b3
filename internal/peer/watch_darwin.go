package peer

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// processWatch tells when a process exits or execs, by kqueue: EVFILT_PROC with
// NOTE_EXIT and NOTE_EXEC (kqueue(2)).
type processWatch struct {
	queue  int
	exited chan struct{}
	ended  sync.Once
	done   chan struct{} // the goroutine has let go of the queue

	mu  sync.Mutex
	err error // why the evidence no longer holds
}

// stopIdent is the user event that ends a watch.
const stopIdent = 1

func watchProcess(pid int) (*processWatch, error) {
	queue, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("kqueue: %w", err)
	}
	unix.CloseOnExec(queue)
	changes := make([]unix.Kevent_t, 2)
	unix.SetKevent(&changes[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_RECEIPT)
	changes[0].Fflags = unix.NOTE_EXIT | unix.NOTE_EXEC
	unix.SetKevent(&changes[1], stopIdent, unix.EVFILT_USER, unix.EV_ADD|unix.EV_RECEIPT)
	receipts := make([]unix.Kevent_t, 2)
	n, err := unix.Kevent(queue, changes, receipts, nil)
	if err == nil && n != len(changes) {
		err = fmt.Errorf("%d receipts", n)
	}
	for _, r := range receipts[:max(n, 0)] {
		if err == nil && r.Data != 0 { // ESRCH: the process is gone
			err = unix.Errno(r.Data)
		}
	}
	if err != nil {
		unix.Close(queue)
		return nil, fmt.Errorf("kevent: %w", err)
	}
	w := &processWatch{queue: queue, exited: make(chan struct{}), done: make(chan struct{})}
	go w.run(pid)
	return w, nil
}

func (w *processWatch) run(pid int) {
	defer close(w.done)
	events := make([]unix.Kevent_t, 2)
	for {
		n, err := unix.Kevent(w.queue, nil, events, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			w.fail(fmt.Errorf("%w: it can no longer be watched: %w", ErrChanged, err))
			return
		}
		for _, e := range events[:n] {
			switch {
			case e.Filter == unix.EVFILT_USER:
				return
			case e.Fflags&unix.NOTE_EXIT != 0:
				w.fail(ErrGone)
				close(w.exited)
				return
			case e.Fflags&unix.NOTE_EXEC != 0:
				w.fail(fmt.Errorf("%w: process %d was exec'd again", ErrChanged, pid))
			}
		}
	}
}

// fail keeps the first reason.
func (w *processWatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *processWatch) state() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *processWatch) close() error {
	var err error
	w.ended.Do(func() {
		w.fail(ErrGone)
		stop := make([]unix.Kevent_t, 1)
		unix.SetKevent(&stop[0], stopIdent, unix.EVFILT_USER, 0)
		stop[0].Fflags = unix.NOTE_TRIGGER
		if _, err = unix.Kevent(w.queue, stop, nil, nil); err == nil {
			<-w.done
		}
		unix.Close(w.queue)
	})
	return err
}
