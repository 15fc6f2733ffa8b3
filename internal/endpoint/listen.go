package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/peer"
)

// proofWait bounds the connection that proves a leftover; the other end is
// this machine's kernel.
const proofWait = time.Second

// Listener is the socket of one broker, and the only one that may be there.
type Listener struct {
	location Location
	socket   *net.UnixListener
	run      *directory
	locks    [2]*lock
	id       identity
	managed  bool // the path is the service manager's, see ListenOn

	close    sync.Once
	closeErr error

	mu   sync.Mutex
	keep bool // the path stays when the listener closes
}

// Listen makes the socket of l. Where another broker has it the error is an
// *InUseError, where something stands in the way that is not ours an
// *UnsafeError; nothing was changed then.
func Listen(l Location) (*Listener, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	uid, err := account()
	if err != nil {
		return nil, err
	}
	mine, err := self(l.Socket)
	if err != nil {
		return nil, err
	}
	run, err := openPrivate(filepath.Dir(l.Socket), uid, true)
	if err != nil {
		return nil, fmt.Errorf("opening the socket's directory: %w", err)
	}
	ln := &Listener{location: l, run: run}
	if err := ln.take(uid, mine); err != nil {
		ln.abandon()
		return nil, err
	}
	return ln, nil
}

// take takes the locks, then the path. The order at the path is: prove and
// remove what is left, bind under a temporary name, record the node, give it
// its name. A crash leaves, in turn: the leftover, nothing, a temporary node
// that the next broker removes, the same with a record, a recorded leftover.
func (ln *Listener) take(uid int, mine holder) error {
	if err := ln.lockBoth(uid, mine); err != nil {
		return err
	}
	prior, err := ln.run.readState()
	if err != nil {
		return err
	}
	if err := ln.run.clearLeftover(socketName, prior); err != nil {
		return err
	}
	if err := ln.run.clearTemporaries(); err != nil {
		return err
	}
	tmp, err := ln.bind()
	if err != nil {
		return fmt.Errorf("making the socket: %w", err)
	}
	err = ln.run.writeState(state{holder: mine, identity: ln.id})
	if err == nil {
		err = ln.run.place(tmp, socketName)
	}
	if err != nil {
		ln.socket.Close()
		ln.run.remove(tmp, ln.id)
	}
	if errors.Is(err, fs.ErrExist) {
		return &UnsafeError{Path: ln.location.Socket, Why: "something appeared there without the lock"}
	}
	return err
}

// lockBoth takes the lock beside the socket, then that of the data.
func (ln *Listener) lockBoth(uid int, mine holder) error {
	if err := ln.lock(0, ln.run, mine); err != nil {
		return err
	}
	home, err := openDirectory(ln.location.Home, uid, true)
	if err != nil {
		return fmt.Errorf("opening the data directory: %w", err)
	}
	defer home.close()
	return ln.lock(1, home, mine)
}

// lock takes the lock in d or finds out who has it.
func (ln *Listener) lock(i int, d *directory, mine holder) error {
	if i == 1 && d.path == ln.run.path {
		return nil // one directory for everything: it is locked already
	}
	l, other, err := takeLock(d, mine)
	if errors.Is(err, errHeld) {
		return inUse(d, other, ln.location.Socket)
	}
	ln.locks[i] = l
	return err
}

// bind makes the node under a temporary name. It has mode 0600 from its first
// moment, less what the umask takes, and exactly 0600 before it gets its name.
func (ln *Listener) bind() (string, error) {
	tmp := temporary('b')
	config := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
		if err := narrow(c); err != nil {
			return err
		}
		return peer.ListenControl(network, address, c)
	}}
	// By path, so that tools show a readable name. The directories above
	// cannot be changed by others, and the node is looked at below.
	made, err := config.Listen(context.Background(), "unix", ln.run.join(tmp))
	if err != nil {
		return "", err
	}
	ln.socket = made.(*net.UnixListener)
	ln.socket.SetUnlinkOnClose(false)
	if err := ln.inspect(tmp); err != nil {
		ln.socket.Close()
		unix.Unlinkat(ln.run.fd, tmp, 0)
		return "", err
	}
	return tmp, nil
}

func (ln *Listener) inspect(tmp string) error {
	n, err := ln.run.openNode(tmp)
	if err != nil {
		return err
	}
	defer n.close()
	if n.mode != 0o600 {
		if err := unix.Fchmodat(ln.run.fd, tmp, 0o600, 0); err != nil {
			return fmt.Errorf("setting the socket's mode: %w", err)
		}
	}
	ln.id = n.id
	return nil
}

// abandon gives up what a failed Listen held.
func (ln *Listener) abandon() {
	for _, l := range ln.locks {
		if l != nil {
			l.release()
		}
	}
	ln.run.close()
}

// Accept waits for the next connection. Close ends it.
func (ln *Listener) Accept() (*net.UnixConn, error) {
	for {
		c, err := ln.socket.AcceptUnix()
		if err != nil || !ln.managed || askSenders(c) == nil {
			return c, err
		}
		c.Close() // who writes on it could not be told
	}
}

// askSenders asks for the senders of what c reads. Connections that came before
// the manager's listener was asked do not inherit it on every kernel.
func askSenders(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return peer.ListenControl("unix", "", raw)
}

// Holds returns nil while the path leads to this listener, and a *LostError
// once it certainly does not: it was removed, another object lies there, or
// the directory went with a login. What cannot be looked at is not lost.
func (ln *Listener) Holds() error {
	path := ln.location.Socket
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return &LostError{Path: path, Why: "it is gone"}
	case err == nil && (uint64(st.Dev) != ln.id.Device || st.Ino != ln.id.Inode):
		return &LostError{Path: path, Why: "another object has taken its place"}
	}
	return nil
}

// Answers reports whether a connection to the path is noticed in time.
func (ln *Listener) Answers(ctx context.Context) bool {
	_, answering, err := probe(ctx, ln.location.Socket, ln.run.uid)
	return answering && err == nil
}

// Location is where the listener is.
func (ln *Listener) Location() Location { return ln.location }

// Node is the socket's device and inode.
func (ln *Listener) Node() (dev, ino uint64) { return ln.id.Device, ln.id.Inode }

// SetUnlinkOnClose says whether Close removes the path; it does by default.
func (ln *Listener) SetUnlinkOnClose(unlink bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.keep = !unlink
}

// Close removes the path, if it is still this listener's and no service
// manager's, stops accepting, and gives up the locks, in this order: while the listener is open its inode
// cannot be given to another, and while the lock is held nobody else binds.
// Where a stranger has taken the path the error is an *UnsafeError, and the
// stranger stays.
func (ln *Listener) Close() error {
	ln.close.Do(func() {
		ln.mu.Lock()
		keep := ln.keep || ln.managed
		ln.mu.Unlock()
		if !keep {
			ln.closeErr = ln.run.remove(socketName, ln.id)
		}
		if !keep || ln.managed {
			unix.Unlinkat(ln.run.fd, stateName, 0) // it speaks of this broker's node alone
		}
		if err := ln.socket.Close(); ln.closeErr == nil {
			ln.closeErr = err
		}
		ln.abandon()
	})
	return ln.closeErr
}
