package peer

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/macos"
)

// ListenControl needs to set nothing on macOS: the kernel keeps the token of
// whoever used the other end last by itself.
func ListenControl(network, _ string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "unix") {
		return fmt.Errorf("%w: %s is not a unix socket", ErrUnsupported, network)
	}
	return nil
}

// Reader reads a unix stream socket and asks after each read whether the one
// process is still who used the other end last. One goroutine reads at a time.
type Reader struct {
	conn    *net.UnixConn
	bracket *macos.Bracket
	err     error // the first failure is the last word

	keep bool
	kept *os.File
}

// NewReader returns a Reader of c for the process pid, which must be at the
// other end of c.
func NewReader(c *net.UnixConn, pid int) *Reader {
	r := &Reader{conn: c}
	libs, err := libraries()
	if err != nil {
		r.err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		return r
	}
	raw, err := c.SyscallConn()
	if err != nil {
		r.err = fmt.Errorf("reaching the socket: %w", err)
		return r
	}
	if r.bracket, r.err = macos.NewBracket(socketToken{libs.kernel, raw}); r.err != nil {
		return r
	}
	if got := r.bracket.Token().PID(); got != pid {
		r.err = &SenderError{Want: pid, Got: got}
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
	var control [64]byte // room for one descriptor, and to see that there were more
	n, oob, flags, _, err := r.conn.ReadMsgUnix(p, control[:])
	if n == 0 && err != nil {
		return 0, err // the end, a deadline or a close: c says so again
	}
	r.err = r.check(control[:oob], flags)
	if r.err != nil {
		clear(p[:n])
		return 0, r.err
	}
	return n, nil
}

func (r *Reader) check(control []byte, flags int) error {
	var passed []int
	messages, err := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m) // other messages carry none
		passed = append(passed, fds...)
	}
	if len(passed) == 1 && r.keep && err == nil && flags&unix.MSG_CTRUNC == 0 {
		unix.CloseOnExec(passed[0])
		r.kept, r.keep = os.NewFile(uintptr(passed[0]), "passed"), false
	} else if len(passed) > 0 || err != nil || flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range passed {
			unix.Close(fd)
		}
		return ErrDescriptor
	}
	if err := r.bracket.Look(macos.AtFirstRequest); err != nil {
		return fmt.Errorf("%w: %w", ErrSender, err)
	}
	return nil
}

// AcceptDescriptor lets one descriptor come with a later read.
func (r *Reader) AcceptDescriptor() { r.keep = r.kept == nil }

// Descriptor hands over the descriptor that came with what was read so far.
func (r *Reader) Descriptor() *os.File {
	f := r.kept
	r.kept = nil
	return f
}
