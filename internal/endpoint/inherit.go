package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/peer"
)

// InheritedName is the name of the one descriptor that a service manager
// passes (FileDescriptorName= of a systemd socket unit).
const InheritedName = "yett-broker"

// listenBacklog is the queue of an inherited listener; the kernel cuts it.
const listenBacklog = 4096

// ListenOn serves on a listening socket that a service manager bound at the
// contract's path, and takes passed over. The path stays the manager's: it is
// neither bound nor removed here. Everything else is as with Listen: the
// directory private, the node ours and open to nobody else, both locks held for life. A
// socket that is not that is an *InheritedError.
func ListenOn(l Location, passed *os.File) (*Listener, error) {
	defer passed.Close()
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
	if err := judgePassed(passed, l.Socket, uid); err != nil {
		return nil, err
	}
	run, err := openPrivate(filepath.Dir(l.Socket), uid, false)
	if err != nil {
		return nil, fmt.Errorf("opening the socket's directory: %w", err)
	}
	ln := &Listener{location: l, run: run, managed: true}
	if err := ln.takePassed(passed, uid, mine); err != nil {
		if ln.socket != nil {
			ln.socket.Close()
		}
		ln.abandon()
		return nil, err
	}
	return ln, nil
}

// takePassed takes the locks, then becomes the listener in the kernel's eyes:
// until listen is called here, clients are told that the manager listens.
func (ln *Listener) takePassed(passed *os.File, uid int, mine holder) error {
	if err := ln.lockBoth(uid, mine); err != nil {
		return err
	}
	n, err := ln.run.openNode(socketName)
	if errors.Is(err, fs.ErrNotExist) {
		return &InheritedError{Why: "there is no socket at " + ln.location.Socket + " any more"}
	}
	if err != nil {
		return err
	}
	defer n.close()
	if n.mode&0o077 != 0 {
		return &UnsafeError{Path: n.path, Why: fmt.Sprintf("its mode is %04o, not 0600", n.mode)}
	}
	if err := askSenders(passed); err != nil {
		return err
	}
	made, err := net.FileListener(passed) // a copy, close-on-exec and non-blocking
	if err != nil {
		return fmt.Errorf("taking over the passed socket: %w", err)
	}
	ln.socket = made.(*net.UnixListener)
	ln.socket.SetUnlinkOnClose(false)
	if err := listenAgain(passed); err != nil {
		return fmt.Errorf("listening on the passed socket: %w", err)
	}
	if err := n.leadsHere(); err != nil {
		return err
	}
	ln.id = n.id
	return ln.run.writeState(state{holder: mine, identity: n.id})
}

func listenAgain(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), listenBacklog) }); err != nil {
		return err
	}
	return failed
}

// leadsHere proves that this node is the listener's: whoever connects to it is
// told by the kernel that this process listens, and it listens nowhere else.
func (n *node) leadsHere() error {
	ctx, cancel := context.WithTimeout(context.Background(), proofWait)
	defer cancel()
	c, err := n.connect(ctx, nil)
	if err != nil {
		return &InheritedError{Why: fmt.Sprintf("%s does not lead to it: %v", n.path, err)}
	}
	defer c.Close()
	if pid, err := peer.Number(c); err != nil || pid != os.Getpid() {
		return &InheritedError{Why: fmt.Sprintf("%s leads to %s instead", n.path, listenerOf(c))}
	}
	return nil
}
