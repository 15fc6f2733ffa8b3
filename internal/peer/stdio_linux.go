package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// Reader returns standard input as a stream, without the bytes of anybody who
// may not write: ErrSender or ErrIntruded comes in their place.
func (s *Stdio) Reader() io.Reader { return stdioReader{s} }

type stdioReader struct{ s *Stdio }

func (r stdioReader) Read(p []byte) (int, error) {
	s := r.s
	s.reading.Lock()
	defer s.reading.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if len(s.used) == 0 {
		if err := s.fill(len(p)); err != nil {
			return 0, err
		}
	}
	s.trusted = s.offset >= s.early
	have := s.used
	if !s.trusted { // never two senders in one Read
		have = have[:min(int64(len(have)), s.early-s.offset)]
	}
	n := copy(p, have)
	s.drop(n)
	return n, nil
}

// Trusted reports whether the bytes of the last Read have a sender. It is
// false for what was queued on a socket before the guard was set, and only
// there.
func (s *Stdio) Trusted() bool {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.trusted
}

// ReadLine returns the next line without its newline, as soon as the newline
// has arrived. attributed is false if any of its bytes was queued before the
// guard was set. A line longer than limit is ErrLineTooLong; what stands
// after the last newline comes with io.ErrUnexpectedEOF. The line belongs to
// the caller.
func (s *Stdio) ReadLine(limit int) (line []byte, attributed bool, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	searched := 0
	for {
		if i := bytes.IndexByte(s.used[searched:], '\n'); i >= 0 {
			if searched+i > limit {
				return nil, false, ErrLineTooLong
			}
			return s.takeLine(searched+i, 1, nil)
		}
		searched = len(s.used)
		if searched > limit {
			return nil, false, ErrLineTooLong
		}
		err := s.fill(stdioChunk)
		if err == io.EOF && searched > 0 {
			return s.takeLine(searched, 0, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return nil, false, err
		}
	}
}

func (s *Stdio) takeLine(n, newline int, err error) ([]byte, bool, error) {
	line, attributed := bytes.Clone(s.used[:n]), s.offset >= s.early
	if line == nil {
		line = []byte{}
	}
	s.drop(n + newline)
	return line, attributed, err
}

func (s *Stdio) drop(n int) {
	s.used = s.used[n:]
	s.offset += int64(n)
}

const stdioChunk = 64 << 10

// fill appends one read of at most n bytes to used.
func (s *Stdio) fill(n int) error {
	if s.err != nil {
		return s.err
	}
	if len(s.used) == 0 {
		s.used = s.buf[:0]
	}
	if cap(s.used)-len(s.used) < min(n, stdioChunk/2) {
		s.buf = append(make([]byte, 0, 2*len(s.used)+stdioChunk), s.used...)
		s.used = s.buf
	}
	room := s.used[len(s.used):cap(s.used)]
	got, err := s.await(room[:min(n, len(room))])
	if err != nil {
		s.err = err
		return err
	}
	s.used = s.used[:len(s.used)+got]
	return nil
}

// await waits for input and takes it, unless somebody opened a pipe: the open
// comes before the write, so bytes that are here without an event are clean.
func (s *Stdio) await(p []byte) (int, error) {
	for {
		if s.closed {
			return 0, os.ErrClosed
		}
		if _, err := unix.Poll(s.fds[:], -1); err != nil && err != unix.EINTR {
			return 0, fmt.Errorf("waiting for input: %w", err)
		}
		if s.fds[1].Revents != 0 {
			return 0, os.ErrClosed
		}
		if s.fds[0].Revents == 0 && s.fds[2].Revents == 0 {
			continue
		}
		n, err := s.take(p)
		if s.watch != nil && readable(int(s.fds[2].Fd)) {
			clear(p[:max(n, 0)])
			s.intrusion()
			return 0, ErrIntruded
		}
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		return n, err
	}
}

func (s *Stdio) take(p []byte) (int, error) {
	if s.fds[0].Revents == 0 {
		return 0, unix.EAGAIN
	}
	if !s.named {
		n, err := s.plainRead(p)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			return 0, err
		case err != nil:
			return 0, fmt.Errorf("reading standard input: %w", err)
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
	n, err := s.in.receive(s.fd, p, false)
	if err != nil {
		return 0, err
	}
	if err := s.checkSender(n); err != nil {
		clear(p[:n])
		return 0, err
	}
	return n, nil
}

// plainRead does not block on a pipe, even if somebody else took what poll had
// seen; terminals and files know no such flag and have no such rival.
func (s *Stdio) plainRead(p []byte) (int, error) {
	if s.Kind == "pipe" {
		n, err := unix.Preadv2(s.fd, [][]byte{p}, -1, unix.RWF_NOWAIT)
		if err != unix.EOPNOTSUPP && err != unix.ENOSYS {
			return n, err
		}
	}
	return unix.Read(s.fd, p)
}

// checkSender lets bytes without a sender through only as far as they can have
// been there before the guard, and only before the first byte that has one.
func (s *Stdio) checkSender(n int) error {
	at := s.offset + int64(len(s.used))
	switch pid := int(s.in.sender.Pid); {
	case s.in.rights:
		return ErrDescriptor
	case !s.in.named:
		return fmt.Errorf("%w: the kernel did not name it", ErrSender)
	case pid == s.parent && pid != 0:
		return nil
	case pid == 0 && at == s.early && at+int64(n) <= s.queued:
		s.early = at + int64(n)
		return nil
	default:
		return &SenderError{Want: s.parent, Got: pid}
	}
}
