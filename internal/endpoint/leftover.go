package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/peer"
)

// clearLeftover removes what lies at name, once it is proven to be the socket
// of an ended instance: the caller holds the lock; it is a socket; it is ours;
// the kernel says that nobody listens; and it is either the recorded node or
// the recorded holder has ended. That a connection fails in any other way, or
// that nobody answers, proves nothing.
func (d *directory) clearLeftover(name string, prior state) error {
	n, err := d.openNode(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer n.close()
	switch err := n.refused(); {
	case err != nil:
		return err
	case n.id != prior.identity && prior.alive():
		return &UnsafeError{Path: n.path, Why: fmt.Sprintf("it is not the recorded socket, and the recorded %s still runs", prior.public())}
	}
	return d.remove(name, n.id)
}

// refused returns nil when the kernel says that nobody listens on n.
func (n *node) refused() error {
	ctx, cancel := context.WithTimeout(context.Background(), proofWait)
	defer cancel()
	c, err := n.connect(ctx, nil)
	switch {
	case err == nil:
		defer c.Close()
		return &UnsafeError{Path: n.path, Why: listenerOf(c).String() + " listens on it without holding the lock"}
	case errors.Is(err, unix.ECONNREFUSED):
		return nil
	}
	return &UnsafeError{Path: n.path, Why: "it cannot be proven to be unused: " + err.Error()}
}

// listenerOf names whoever listens at the other end of c, for a message.
func listenerOf(c *net.UnixConn) Holder {
	p, err := peer.Of(c)
	if err != nil {
		return Holder{}
	}
	defer p.Close()
	k := p.Evidence().Kernel
	return Holder{PID: k.PID, Executable: k.ExePath}
}

// clearTemporaries removes what a crash left between two steps. Only the
// holder of the lock makes such names.
func (d *directory) clearTemporaries() error {
	names, err := d.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case isTemporary(name, 'b'):
			n, err := d.openNode(name)
			if err != nil {
				continue // not a node of ours: it stays
			}
			if n.refused() == nil {
				err = d.remove(name, n.id)
			}
			n.close()
			if err != nil {
				return err
			}
		case isTemporary(name, 's'):
			if err := unix.Unlinkat(d.fd, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return &os.PathError{Op: "unlink", Path: d.join(name), Err: err}
			}
		}
	}
	return nil
}

// answerWait is how long a running broker may take to react to a connection
// that has ended.
const answerWait = 2 * time.Second

// inUse is the error for a held lock. The holder may use another socket than
// we would; where its record does not say, ours is asked.
func inUse(d *directory, h holder, socket string) error {
	if h.Socket != "" {
		socket = h.Socket
	}
	e := &InUseError{Path: d.join(lockName), Holder: h.public()}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	for {
		listener, answering, err := probe(ctx, socket, d.uid)
		// The kernel's word over the record's, unless it hides the program.
		if listener.PID != 0 && (listener.PID != h.PID || listener.Executable != "") {
			e.Holder = listener
		}
		e.Answering = answering
		if err == nil || ctx.Err() != nil {
			return e
		}
		// It has the lock and no socket yet: it may be starting.
		select {
		case <-ctx.Done():
			return e
		case <-time.After(connectPause):
		}
	}
}

// probe connects, ends its own side, and waits for the other's reaction. It
// needs no protocol: a broker that lives notices the end and closes or
// answers, one that is stopped does not, although the kernel still takes the
// connection.
func probe(ctx context.Context, socket string, uid int) (listener Holder, answering bool, err error) {
	d, err := openPrivate(filepath.Dir(socket), uid, false)
	if err != nil {
		return Holder{}, false, err
	}
	defer d.close()
	n, err := d.openNode(socketName)
	if err != nil {
		return Holder{}, false, err
	}
	defer n.close()
	c, err := n.connect(ctx, nil)
	if err != nil {
		return Holder{}, false, err
	}
	defer c.Close()
	listener = listenerOf(c)
	if deadline, ok := ctx.Deadline(); ok {
		c.SetDeadline(deadline)
	}
	if err := c.CloseWrite(); err != nil {
		return listener, true, nil // it has closed already
	}
	_, err = c.Read(make([]byte, 1))
	return listener, !errors.Is(err, os.ErrDeadlineExceeded), nil
}
