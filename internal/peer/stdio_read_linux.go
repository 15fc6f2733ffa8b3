package peer

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

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
