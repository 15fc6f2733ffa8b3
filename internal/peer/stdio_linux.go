package peer

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Stdio is standard input as a shim found it, and the guard over it. It reads
// without ever changing the mode of descriptors that are shared with others.
type Stdio struct {
	Kind    string // pipe, socket, or other: a terminal, a file, /dev/null
	Guarded bool   // bytes of others than the parent would be noticed
	Why     string // why not guarded

	fd     int  // our own duplicate of standard input
	named  bool // the kernel names senders
	parent int
	watch  *os.File // inotify on the pipes; nil if there is none
	wake   int      // eventfd: Close ends a blocked read

	intruded  chan struct{}
	intrude   sync.Once
	closeOnce sync.Once

	// Everything below belongs to whoever reads.
	reading sync.Mutex
	closed  bool
	err     error // the first failure is the last word
	fds     [3]unix.PollFd
	in      receiver
	buf     []byte // where used lies, unless it is full
	used    []byte // what was read and not handed out
	offset  int64  // stream position of used[0]
	early   int64  // stream position up to which bytes have no sender
	queued  int64  // bytes that were there before senders were named
	trusted bool   // of the last Read
}

// GuardStdin looks at standard input and output and sets the guard. Call it
// before the first read. parent is the only process that may write on a
// socket.
func GuardStdin(in, out *os.File, parent int) (*Stdio, error) {
	s := &Stdio{Kind: "other", fd: -1, wake: -1, parent: parent, intruded: make(chan struct{})}
	err := withFd(in, func(fd int) (err error) {
		if s.fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return fmt.Errorf("duplicating standard input: %w", err)
		}
		return s.lookAt(fd)
	})
	if err == nil {
		err = withFd(out, s.watchOutput)
	}
	if err == nil {
		s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.fds = [3]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}, {Fd: -1}}
	if s.watch != nil {
		if err := withFd(s.watch, func(fd int) error {
			s.fds[2] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			return nil
		}); err != nil {
			s.Close()
			return nil, err
		}
		go s.awaitIntrusion()
	}
	return s, nil
}

// withFd lends the descriptor of f. File.Fd would switch a shared description
// to blocking mode.
func withFd(f *os.File, use func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("reaching %s: %w", f.Name(), err)
	}
	var uerr error
	if err := raw.Control(func(fd uintptr) { uerr = use(int(fd)) }); err != nil {
		return fmt.Errorf("reaching %s: %w", f.Name(), err)
	}
	return uerr
}

func (s *Stdio) lookAt(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("looking at standard input: %w", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		s.Kind = "pipe"
		if err := s.addWatch(fd); err != nil {
			s.Why = "standard input cannot be watched: " + err.Error()
			return nil
		}
		s.Guarded = true
	case unix.S_IFSOCK:
		s.Kind = "socket"
		if err := s.nameSenders(fd); err != nil {
			s.Why = "the senders on standard input cannot be told: " + err.Error()
			return nil
		}
		s.named, s.Guarded = true, true
	default:
		s.Why = "standard input is neither a pipe nor a socket"
	}
	return nil
}

// nameSenders makes the kernel name the sender of everything that is written
// from now on. What lies in the queue already will come without a name.
func (s *Stdio) nameSenders(fd int) error {
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_UNIX {
		return errors.New("not a unix socket")
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return errors.New("not a stream socket")
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return err
	}
	// Asked after, so it may count bytes that do have a name: it is a bound.
	queued, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return err
	}
	s.queued = int64(queued)
	return nil
}

// watchOutput watches standard output if it is a pipe: who opens it can answer
// in our name.
func (s *Stdio) watchOutput(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("looking at standard output: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	if err := s.addWatch(fd); err != nil {
		s.Guarded = false
		if s.Why == "" {
			s.Why = "standard output cannot be watched: " + err.Error()
		}
	}
	return nil
}

// addWatch follows the link in /proc to the pipe itself and does not open it,
// so only others trip the watch.
func (s *Stdio) addWatch(fd int) error {
	if s.watch == nil {
		n, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return fmt.Errorf("making a watch: %w", err)
		}
		s.watch = os.NewFile(uintptr(n), "inotify")
	}
	return withFd(s.watch, func(watch int) error {
		_, err := unix.InotifyAddWatch(watch, fmt.Sprintf("/proc/self/fd/%d", fd), unix.IN_OPEN)
		return err
	})
}

// awaitIntrusion reads no event: one is enough, and it must stay readable for
// the check that follows each read of data.
func (s *Stdio) awaitIntrusion() {
	raw, err := s.watch.SyscallConn()
	if err != nil {
		return // closed
	}
	if err := raw.Read(func(fd uintptr) bool { return readable(int(fd)) }); err == nil {
		s.intrusion()
	}
}

func (s *Stdio) intrusion() { s.intrude.Do(func() { close(s.intruded) }) }

// Intruded is closed when another process opens one of the pipes.
func (s *Stdio) Intruded() <-chan struct{} { return s.intruded }

// Close ends a blocked read and frees what the guard holds. Standard input
// itself stays open.
func (s *Stdio) Close() error {
	var err error
	s.closeOnce.Do(func() {
		if s.wake >= 0 {
			_, err = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
		s.reading.Lock()
		defer s.reading.Unlock()
		s.closed = true
		if s.watch != nil {
			err = errors.Join(err, s.watch.Close())
		}
		for _, fd := range []int{s.fd, s.wake} {
			if fd >= 0 {
				err = errors.Join(err, unix.Close(fd))
			}
		}
	})
	return err
}
