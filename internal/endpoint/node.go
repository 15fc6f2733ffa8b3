package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// identity tells one file system object from another. The time it was made
// guards against a number that was given out again.
type identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	MadeNS int64  `json:"made_ns"` // modification time, which a socket keeps
}

func identityOf(st *unix.Stat_t) identity {
	return identity{Device: uint64(st.Dev), Inode: st.Ino, MadeNS: st.Mtim.Nano()}
}

func isKind(st *unix.Stat_t, kind uint32) bool { return uint32(st.Mode)&unix.S_IFMT == kind }

func kindOf(st *unix.Stat_t) string {
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFREG:
		return "a regular file"
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFIFO:
		return "a named pipe"
	}
	return "a device"
}

// node is a socket in the file system, held so that what was checked is what
// is connected to.
type node struct {
	handle nodeHandle
	path   string
	id     identity
	mode   uint32
}

// openNode opens name as what it must be: a socket of this account.
func (d *directory) openNode(name string) (*node, error) {
	handle, st, err := openNodeHandle(d, name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.join(name), Err: err}
	}
	n := &node{handle: handle, path: d.join(name), id: identityOf(&st), mode: uint32(st.Mode) & 0o7777}
	if !isKind(&st, unix.S_IFSOCK) {
		n.close()
		return nil, &UnsafeError{Path: n.path, Why: "it is " + kindOf(&st) + ", not a socket"}
	}
	if owner := int(st.Uid); owner != d.uid {
		n.close()
		return nil, &UnsafeError{Path: n.path, Why: fmt.Sprintf("it belongs to uid %d, not to uid %d", owner, d.uid)}
	}
	return n, nil
}

func (n *node) close() { n.handle.close() }

// connectPause is how long a full queue is left alone between two attempts.
const connectPause = 5 * time.Millisecond

// connect connects to this node. A full queue is waited for until ctx ends.
func (n *node) connect(ctx context.Context, control func(network, address string, c syscall.RawConn) error) (*net.UnixConn, error) {
	dialer := net.Dialer{Control: control}
	for {
		c, err := dialer.DialContext(ctx, "unix", n.handle.address(n.path))
		if err == nil {
			return c.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, causeOf(err)
		}
		select {
		case <-ctx.Done():
			return nil, errQueueFull
		case <-time.After(connectPause):
		}
	}
}

var errQueueFull = errors.New("its queue of connections is full")

// causeOf drops the address from a dialling error: it names a descriptor, not
// the socket.
func causeOf(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	return err
}
