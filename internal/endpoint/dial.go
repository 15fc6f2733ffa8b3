package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/peer"
)

// dialWait bounds Dial where the caller sets no earlier end. Only a broker
// with a full queue, or one that is being started, takes that long.
const dialWait = time.Second

// Conn is a connection to a broker that proved itself as far as the kernel
// can tell. What it reads was sent by the process that listens.
type Conn struct {
	*net.UnixConn
	Broker *peer.Process

	// Hidden: the kernel does not let this account read which program the
	// broker is. Replaced: the installed program was replaced since the broker
	// started, as an update does. Neither is a refusal; both are worth saying.
	Hidden   bool
	Replaced bool

	reader *peer.Reader
}

// ErrSender is the failure of a Read that met bytes of another process than the
// one that listens.
var ErrSender = peer.ErrSender

// Read reads what the broker sent and fails when anyone else wrote.
func (c *Conn) Read(b []byte) (int, error) { return c.reader.Read(b) }

var errUnchecked = errors.New("reading from the broker without checking the sender is not offered")

// ReadFrom, ReadFromUnix and ReadMsgUnix would pass the check by.
func (c *Conn) ReadFrom([]byte) (int, net.Addr, error) { return 0, nil, errUnchecked }

// ReadFromUnix is not offered, see ReadFrom.
func (c *Conn) ReadFromUnix([]byte) (int, *net.UnixAddr, error) { return 0, nil, errUnchecked }

// ReadMsgUnix is not offered, see ReadFrom.
func (c *Conn) ReadMsgUnix(_, _ []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	return 0, 0, 0, nil, errUnchecked
}

// Close closes the connection and lets go of the evidence.
func (c *Conn) Close() error {
	err := c.UnixConn.Close()
	if e := c.Broker.Close(); err == nil {
		err = e
	}
	return err
}

var _ io.ReadWriteCloser = (*Conn)(nil)

// Dial connects to the broker at l and proves, before a byte is sent, that the
// path is the contract's, the node private and ours, and whoever listens a
// process of this account that runs the installed yett, where the kernel lets
// that be read. Every failure is an *UnavailableError.
func Dial(ctx context.Context, l Location) (*Conn, error) {
	return dial(ctx, l, func() (string, uint64, uint64, error) { return Installed("yett") })
}

// program names the executable that a broker must run.
type program func() (path string, dev, ino uint64, err error)

func dial(ctx context.Context, l Location, installed program) (*Conn, error) {
	unavailable := func(cause Cause, err error) error {
		return &UnavailableError{Cause: cause, Socket: l.Socket, Err: err}
	}
	if err := l.Check(); err != nil {
		return nil, unavailable(Unsafe, err)
	}
	uid, err := account()
	if err != nil {
		return nil, unavailable(Unsafe, err)
	}
	n, err := findNode(l, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unavailable(NotRunning, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, unavailable(Forbidden, err)
	}
	if err != nil {
		return nil, unavailable(Unsafe, err)
	}
	defer n.close()

	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	pause := takeoverPause
	c, cause, err := n.reach(ctx, uid, installed)
	for err != nil && takeover(err) {
		select {
		case <-ctx.Done():
			return nil, unavailable(cause, err)
		case <-time.After(pause):
		}
		pause = min(2*pause, 8*takeoverPause)
		next, nextCause, e := n.reach(ctx, uid, installed)
		if e != nil && ctx.Err() != nil {
			return nil, unavailable(cause, err) // what was seen before says more
		}
		c, cause, err = next, nextCause, e
	}
	if err != nil {
		return nil, unavailable(cause, err)
	}
	return c, nil
}

// takeoverPause is how long a broker that the service manager is starting is
// left alone before the next attempt, at first.
const takeoverPause = 15 * time.Millisecond

// takeover reports whether a service manager may be handing its socket to a
// broker: it listens itself, or the kernel still names the broker before. Once
// the new one listens, a new connection leads to it.
func takeover(err error) bool { return errors.Is(err, errManager) || errors.Is(err, peer.ErrGone) }

// reach connects to the node once and proves whoever listens.
func (n *node) reach(ctx context.Context, uid int, installed program) (*Conn, Cause, error) {
	raw, err := n.connect(ctx, peer.ListenControl)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, Stale, err
	case errors.Is(err, fs.ErrNotExist): // removed since it was found
		return nil, NotRunning, err
	case errors.Is(err, errQueueFull), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil, NotAnswering, err
	case errors.Is(err, fs.ErrPermission):
		return nil, Forbidden, err
	case err != nil:
		return nil, Unsafe, err
	}
	c, err := prove(raw, uid, installed)
	if err == nil {
		return c, "", nil
	}
	raw.Close()
	switch {
	case errors.Is(err, peer.ErrGone):
		return nil, Stale, err
	case errors.Is(err, peer.ErrUnsupported):
		return nil, Unsafe, err
	case errors.Is(err, errManager):
		return nil, Starting, err
	case errors.Is(err, errStopped):
		return nil, NotAnswering, err
	}
	return nil, Imposter, err
}

// findNode goes the contract's way to the socket and opens it.
func findNode(l Location, uid int) (*node, error) {
	d, err := openPrivate(filepath.Dir(l.Socket), uid, false)
	if err != nil {
		return nil, err
	}
	defer d.close()
	n, err := d.openNode(socketName)
	if err != nil {
		return nil, err
	}
	if n.mode&0o077 != 0 {
		n.close()
		return nil, &UnsafeError{Path: n.path, Why: fmt.Sprintf("its mode is %04o, not 0600", n.mode)}
	}
	return n, nil
}

// prove judges whoever listens. Nothing has been sent to it.
func prove(raw *net.UnixConn, uid int, installed program) (*Conn, error) {
	broker, err := peer.Of(raw)
	if pid, e := peer.Number(raw); err != nil && e == nil && programName(pid) == managerName {
		return nil, errManager // the system's own may show nothing of itself
	}
	if err != nil {
		return nil, fmt.Errorf("identifying the process that listens: %w", err)
	}
	c := &Conn{UnixConn: raw, Broker: broker}
	if err := c.judge(uid, installed); err != nil {
		broker.Close()
		return nil, err
	}
	c.reader = peer.NewReader(raw, broker.PID())
	return c, nil
}

var (
	// errManager says that the service manager listens: it keeps the socket
	// for a broker that it has not started, or that has not taken over yet.
	errManager = errors.New("the service manager listens, and the broker has not taken over yet")
	errStopped = errors.New("the broker's process is stopped")
)

func (c *Conn) judge(uid int, installed program) error {
	k := c.Broker.Evidence().Kernel
	if err := c.judgeProgram(uid, installed); err != nil {
		// Whatever calls itself so is waited for a moment and never spoken to.
		if programName(k.PID) == managerName {
			return errManager
		}
		return err
	}
	if c.Hidden && programName(k.PID) == managerName {
		return errManager
	}
	if stopped(k.PID) {
		return fmt.Errorf("%w: process %d", errStopped, k.PID)
	}
	return nil
}

func (c *Conn) judgeProgram(uid int, installed program) error {
	k := c.Broker.Evidence().Kernel
	if k.UID != uid {
		return fmt.Errorf("process %d listens with uid %d, not with uid %d", k.PID, k.UID, uid)
	}
	if k.ExeState == "hidden" {
		c.Hidden = true
		return nil
	}
	path, dev, ino, err := installed()
	if err != nil {
		return fmt.Errorf("process %d (%s) listens, and the installed program to compare it with was not found: %w", k.PID, k.ExePath, err)
	}
	if c.Broker.SameExecutable(dev, ino) {
		return nil
	}
	if k.ExeState == "replaced" && strings.TrimSuffix(k.ExePath, " (deleted)") == path {
		c.Replaced = true
		return nil
	}
	return fmt.Errorf("process %d listens and runs %s, not the installed %s", k.PID, k.ExePath, path)
}
