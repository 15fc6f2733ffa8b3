package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/action"
)

// Process is one live process, held by its pidfd, with the evidence that was
// taken when it was first held. All methods may be called concurrently.
type Process struct {
	pidfd   *os.File
	raw     syscall.RawConn
	dir     procDir // used under raw.Control only, which Close waits for
	done    chan struct{}
	comm    string
	initial bool
	space   space

	hashing sync.Mutex // held for the length of the one Hash
	hashed  bool

	mu       sync.Mutex
	evidence action.Process // only Filesystem's digest changes, once
}

// Of takes the evidence of the process at the other end of c: the one that
// connected, or, if c was dialled, the one that called listen.
func Of(c *net.UnixConn) (*Process, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	return peerOf(raw)
}

func peerOf(raw syscall.RawConn) (*Process, error) {
	var (
		fd      int
		cred    *unix.Ucred
		fdErr   error
		credErr error
	)
	err := raw.Control(func(s uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED)
		fd, fdErr = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	if fdErr == unix.ENOPROTOOPT {
		return nil, fmt.Errorf("%w: Linux %s gives no SO_PEERPIDFD; Yett needs kernel 6.5 or later", ErrUnsupported, kernelRelease())
	}
	if fdErr != nil {
		return nil, noAttribution("the kernel gives no pidfd of the peer: %w", fdErr)
	}
	p, err := hold(fd)
	if err != nil {
		return nil, err
	}
	// The socket remembers who connected; the process may have changed since.
	k := p.evidence.Kernel
	if credErr != nil || int(cred.Pid) != k.PID || int(cred.Uid) != k.UID || int(cred.Gid) != k.GID {
		p.Close()
		return nil, noAttribution("the socket and the process name different accounts")
	}
	return p, nil
}

// hold takes over a pidfd, whatever becomes of it, and reads the evidence.
func hold(fd int) (*Process, error) {
	// Before NewFile, so that Go's poller takes the descriptor.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("making the pidfd non-blocking: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	p := &Process{pidfd: f, dir: -1, done: make(chan struct{})}
	if err := p.read(fd); err != nil {
		p.Close()
		if !errors.Is(err, ErrNoAttribution) {
			err = noAttribution("%w", err)
		}
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // fails unless the poller has it
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("watching the pidfd: %w", err)
	}
	p.raw = raw
	go p.watch()
	return p, nil
}

// read opens the directory of the process behind fd and fills p from it.
func (p *Process) read(fd int) error {
	id, err := identify(fd)
	if err != nil {
		return err
	}
	if p.dir, err = openProc(id.pid); err != nil {
		return err
	}
	a, err := gather(fd, p.dir) // polls: so the number still named this process when it was opened
	if err != nil {
		return err
	}
	p.comm, p.initial, p.space, p.evidence = a.comm, a.initial, a.space, a.evidence
	return nil
}

// watch ends when the process exits or p is closed.
func (p *Process) watch() {
	err := p.raw.Read(func(fd uintptr) bool { return !alive(int(fd)) })
	if err == nil {
		close(p.done)
	}
}

// PID is the process id, for display: it says nothing once Done is closed.
func (p *Process) PID() int { return p.evidence.Kernel.PID }

// Evidence returns what was read when the process was first held, with the
// digest if Hash has run.
func (p *Process) Evidence() action.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.evidence
	e.Claimed.Argv = slices.Clone(e.Claimed.Argv)
	return e
}

// Done is closed when the process has exited, reaped or not. It stays open
// after Close.
func (p *Process) Done() <-chan struct{} { return p.done }

// Alive asks the kernel now. It is false after Close.
func (p *Process) Alive() bool {
	ok := false
	err := p.raw.Control(func(fd uintptr) { ok = alive(int(fd)) })
	return err == nil && ok
}

// Recheck asks whether the evidence still holds: alive, the same executable,
// the same account, and no exec since. A program that was seen and now hides
// has changed.
func (p *Process) Recheck() error {
	var err error
	if cerr := p.raw.Control(func(fd uintptr) { err = p.recheck(int(fd)) }); cerr != nil {
		return fmt.Errorf("rechecking process %d: %w", p.PID(), cerr)
	}
	return err
}

func (p *Process) recheck(fd int) error {
	k := &p.evidence.Kernel
	execed := p.space.changed(p.dir)
	img, _, imgErr := p.dir.file()
	uid, gid, ownerErr := p.dir.owner()
	if !alive(fd) { // last: alive now means alive all the while
		return ErrGone
	}
	switch {
	case imgErr != nil:
		return fmt.Errorf("%w: %w", ErrChanged, imgErr)
	case ownerErr != nil:
		return fmt.Errorf("%w: %w", ErrChanged, ownerErr)
	case uid != k.UID || gid != k.GID:
		return fmt.Errorf("%w: user %d, group %d, was %d, %d", ErrChanged, uid, gid, k.UID, k.GID)
	case !img.same(image{dev: k.ExeDevice, ino: k.ExeInode}):
		return fmt.Errorf("%w: another program", ErrChanged)
	case execed:
		return fmt.Errorf("%w: it was exec'd again", ErrChanged)
	}
	return nil
}

// SameExecutable reports whether the process was started from this very file.
// It is false for a hidden program.
func (p *Process) SameExecutable(dev, ino uint64) bool {
	k := p.evidence.Kernel
	return k.ExeState != exeHidden && k.ExeInode != 0 && k.ExeDevice == dev && k.ExeInode == ino
}

// Close lets go of the process; it does nothing to it.
func (p *Process) Close() error {
	if err := p.pidfd.Close(); err != nil {
		return err
	}
	if p.dir >= 0 {
		p.dir.close()
	}
	return nil
}
