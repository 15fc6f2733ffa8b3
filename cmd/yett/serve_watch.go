package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

// watchEvery is how often the broker looks whether it can be reached.
const watchEvery = time.Second

// start is what came from whoever started the broker.
type start struct {
	manager *endpoint.Manager
	passed  *os.File // the listener of a service manager, or nil
	err     error
}

// takeStart takes what a service manager passed, and closes every other
// descriptor that came along: whoever reads the other end of one would wait
// for its end for as long as the broker lives.
func takeStart() start {
	s := start{manager: endpoint.TakeManager()}
	s.passed, s.err = endpoint.Inherited()
	closeInherited(s.passed)
	return s
}

// closeInherited closes what is neither a standard stream nor close-on-exec:
// what this program opens itself always is.
func closeInherited(keep *os.File) {
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return
	}
	for _, name := range names {
		fd, err := strconv.Atoi(filepath.Base(name))
		if err != nil || fd <= 2 || (keep != nil && fd == int(keep.Fd())) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			syscall.Close(fd)
		}
	}
}

// listen is on the manager's socket where one was passed, else on one of our
// own: whoever starts the service owns its path.
func (s start) listen(loc endpoint.Location) (*endpoint.Listener, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.passed != nil:
		fd, err := unix.FcntlInt(s.passed.Fd(), unix.F_DUPFD_CLOEXEC, 0) // one for each try
		if err != nil {
			return nil, fmt.Errorf("duplicating the service manager's listener: %w", err)
		}
		return endpoint.ListenOn(loc, os.NewFile(uintptr(fd), s.passed.Name()))
	}
	return endpoint.Listen(loc)
}

// close lets go of what was passed; the listener has its own.
func (s start) close() {
	if s.passed != nil {
		s.passed.Close()
	}
}

// endpointWatch looks after the path, and tells the service manager how the
// broker is.
type endpointWatch struct {
	ctx     context.Context // ends when the path is lost
	cancel  context.CancelCauseFunc
	log     *slog.Logger
	manager *endpoint.Manager
	ended   chan struct{}
	once    sync.Once
}

func watchEndpoint(ctx context.Context, log *slog.Logger, manager *endpoint.Manager, ln *endpoint.Listener, b *broker.Broker) *endpointWatch {
	w := &endpointWatch{log: log, manager: manager, ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.tell(manager.Ready(inWords(b.Status())))
	go w.run(ln, b)
	return w
}

// end ends the watch; the path is looked at no more when it returns.
func (w *endpointWatch) end() {
	w.once.Do(func() {
		w.cancel(nil)
		<-w.ended
		w.tell(w.manager.Stopping("stopping"))
	})
}

// lost is why the broker could not be reached any more, or nil.
func (w *endpointWatch) lost() error {
	if err, ok := context.Cause(w.ctx).(*endpoint.LostError); ok {
		return err
	}
	return nil
}

func (w *endpointWatch) run(ln *endpoint.Listener, b *broker.Broker) {
	defer close(w.ended)
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	var feed <-chan time.Time
	if limit := w.manager.Watchdog(); limit > 0 {
		t := time.NewTicker(limit / 2)
		defer t.Stop()
		feed = t.C
	}
	said := ""
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-look.C:
			if err := ln.Holds(); err != nil {
				w.log.Error("the broker ends: nobody can reach it any more", "cause", err)
				w.cancel(err)
				return
			}
			if w.manager == nil {
				continue
			}
			if now := inWords(b.Status()); now != said {
				w.tell(w.manager.Status(now))
				said = now
			}
		case <-feed:
			w.feed(ln)
		}
	}
}

// feed feeds the watchdog if the broker notices a connection.
func (w *endpointWatch) feed(ln *endpoint.Listener) {
	ctx, cancel := context.WithTimeout(w.ctx, w.manager.Watchdog()/2)
	defer cancel()
	if ln.Answers(ctx) {
		w.tell(w.manager.Alive())
	}
}

func (w *endpointWatch) tell(err error) {
	if err != nil {
		w.log.Warn("the service manager does not listen", "error", err)
	}
}

// inWords is the status as a service manager shows it: no names, counts only.
func inWords(st wire.Status) string {
	s := fmt.Sprintf("%s, %s, %d waiting", st.State, screen.HowMany(st.Sessions, "session"), st.Pending)
	if st.UpdateWaiting {
		s += "; an update waits for a restart"
	}
	return s
}
