package peer

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ListenControl sets SO_PASSCRED before the socket is bound or connected, so
// that every message carries the kernel's word on its sender; accepted sockets
// inherit it. It fits net.ListenConfig.Control and net.Dialer.Control.
func ListenControl(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "unix") {
		return fmt.Errorf("%w: %s is not a unix socket", ErrUnsupported, network)
	}
	var err error
	cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	})
	if cerr != nil {
		return fmt.Errorf("reaching the socket: %w", cerr)
	}
	if err != nil {
		return fmt.Errorf("asking for the credentials of senders: %w", err)
	}
	return nil
}

// Reader reads a unix stream socket and lets through only what one process
// wrote. The kernel never gives bytes of two senders in one read. Reader
// compares numbers: call Process.Recheck before acting on what was read, so
// that the number still means the process. One goroutine reads at a time.
type Reader struct {
	raw      syscall.RawConn
	pid, uid int
	err      error // the first failure is the last word

	keep bool     // one descriptor may come
	kept *os.File // it came

	in   receiver
	p    []byte
	n    int
	errr error
	try  func(fd uintptr) bool
}

// NewReader returns a Reader of c for the process pid, which must be at the
// other end of c, on a socket that ListenControl prepared.
func NewReader(c *net.UnixConn, pid int) *Reader {
	r := &Reader{pid: pid}
	r.try = r.tryOnce
	raw, err := c.SyscallConn()
	if err != nil {
		r.err = fmt.Errorf("reaching the socket: %w", err)
		return r
	}
	r.raw = raw
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	switch {
	case cerr != nil:
		r.err = fmt.Errorf("reaching the socket: %w", cerr)
	case err != nil:
		r.err = fmt.Errorf("asking who connected: %w", err)
	default:
		r.uid = int(cred.Uid)
	}
	return r
}

// Read implements io.Reader. After anything but a timeout it fails for good.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	r.p = p
	err := r.raw.Read(r.try)
	r.p = nil
	if err != nil { // a deadline or a close: c says so again at the next call
		return 0, err
	}
	if r.errr != nil {
		r.err = r.errr
		return 0, r.err
	}
	r.err = r.check()
	if r.in.passed >= 0 {
		if r.err == nil {
			r.kept, r.keep = os.NewFile(uintptr(r.in.passed), "passed"), false
		} else {
			unix.Close(r.in.passed)
		}
	}
	if r.err != nil {
		clear(p[:r.n])
		return 0, r.err
	}
	return r.n, nil
}

// AcceptDescriptor lets one descriptor come with a later read. Without it, and
// after that one, a descriptor is ErrDescriptor. It belongs between two reads.
func (r *Reader) AcceptDescriptor() { r.keep = r.kept == nil }

// Descriptor hands over the descriptor that came with what was read so far,
// once, or nil. The caller closes it. The kernel ends a read with the write
// that carried the descriptor, so it is there when the end of that write is.
func (r *Reader) Descriptor() *os.File {
	f := r.kept
	r.kept = nil
	return f
}

func (r *Reader) tryOnce(fd uintptr) bool {
	r.n, r.errr = r.in.receive(int(fd), r.p, r.keep)
	return r.errr != unix.EAGAIN
}

func (r *Reader) check() error {
	if r.in.rights {
		return ErrDescriptor
	}
	if !r.in.named {
		return fmt.Errorf("%w: the kernel did not name it", ErrSender)
	}
	if pid := int(r.in.sender.Pid); pid != r.pid {
		return &SenderError{Want: r.pid, Got: pid}
	}
	if uid := int(r.in.sender.Uid); uid != r.uid {
		return &SenderError{Want: r.pid, Got: r.pid, WantUID: r.uid, GotUID: uid}
	}
	return nil
}

// receiver is one recvmsg with room for credentials, and for one descriptor if
// it is wanted. Others are dropped by the kernel and never enter this process.
type receiver struct {
	sender unix.Ucred
	named  bool // sender is set
	rights bool // unwanted descriptors came too
	passed int  // the wanted one, or -1

	header  unix.Msghdr
	vector  unix.Iovec
	control struct {
		header unix.Cmsghdr
		cred   unix.Ucred
		_      [4]byte // CMSG_SPACE rounds up
		second unix.Cmsghdr
		fd     int32
		_      [4]byte
	}
}

const (
	roomForSender     = 32                 // CMSG_SPACE of a Ucred
	roomForDescriptor = roomForSender + 20 // and CMSG_LEN of one int: no room for two
)

// receive reads once without blocking; io.EOF is the end.
func (m *receiver) receive(fd int, p []byte, descriptor bool) (int, error) {
	m.control.header, m.control.second, m.passed = unix.Cmsghdr{}, unix.Cmsghdr{}, -1
	m.vector.Base = &p[0]
	m.vector.SetLen(len(p))
	m.header = unix.Msghdr{Iov: &m.vector, Iovlen: 1, Control: (*byte)(unsafe.Pointer(&m.control))}
	m.header.SetControllen(roomForSender)
	if descriptor {
		m.header.SetControllen(roomForDescriptor)
	}
	var (
		n     uintptr
		errno = unix.EINTR
	)
	for errno == unix.EINTR {
		n, _, errno = unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.header)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	}
	m.vector.Base = nil
	switch {
	case errno == unix.EAGAIN:
		return 0, unix.EAGAIN
	case errno != 0:
		return 0, fmt.Errorf("receiving: %w", errno)
	case n == 0:
		return 0, io.EOF
	}
	h := m.control.header
	m.named = m.header.Controllen > 0 && h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_CREDENTIALS &&
		int(h.Len) == unix.CmsgLen(unix.SizeofUcred)
	m.rights = m.header.Flags&unix.MSG_CTRUNC != 0
	m.sender = m.control.cred
	if s := m.control.second; descriptor && s.Type == unix.SCM_RIGHTS && s.Level == unix.SOL_SOCKET && int(s.Len) == unix.CmsgLen(4) {
		m.passed = int(m.control.fd)
	}
	return int(n), nil
}
