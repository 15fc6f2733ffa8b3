package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
)

// dialTime bounds the wait for whoever listens.
const dialTime = 2 * time.Second

// Node is an entry of the file system, as lstat tells it.
type Node struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Owner  int    `json:"owner"`
	Mode   string `json:"mode"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Endpoint is the socket's directory, the socket, and whether a broker was
// proven to be behind it. Nodes are nil where there is nothing.
type Endpoint struct {
	Directory *Node
	Socket    *Node
	Cause     Cause // "" if a broker proved itself
	Why       string
}

// Running is the process that proved to be the broker.
type Running struct {
	PID      int
	Program  string // as the kernel names it; "" where it hides it from us
	Hidden   bool
	Replaced bool // the kernel says that its program's file is another one now
	// Pidfs: the kernel gives each process a number that no other one gets
	// until the next boot.
	Pidfs bool
	// Started and Arguments are zero where the system does not tell them. The
	// arguments are what the process says it was started with.
	Started   time.Time
	Arguments []string
}

// LookAtEndpoint looks at the socket and connects once, without sending a
// byte, to learn from the kernel who listens.
func LookAtEndpoint(ctx context.Context, l endpoint.Location) (Endpoint, *Running) {
	e := Endpoint{Directory: lookAt(filepath.Dir(l.Socket)), Socket: lookAt(l.Socket)}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := endpoint.Dial(ctx, l)
	if err != nil {
		e.Cause, e.Why = causeOf(err), err.Error()
		if u := (*endpoint.UnavailableError)(nil); errors.As(err, &u) && u.Err != nil {
			e.Why = u.Err.Error()
		}
		return e, nil
	}
	defer conn.Close()
	k := conn.Broker.Evidence().Kernel
	r := &Running{PID: k.PID, Program: k.ExePath, Hidden: conn.Hidden, Replaced: conn.Replaced, Pidfs: k.PidfsInode != 0}
	r.Started, _ = startOf(k.PID)
	r.Arguments = conn.Broker.Evidence().Claimed.Argv
	return e, r
}

func causeOf(err error) Cause {
	var u *endpoint.UnavailableError
	if !errors.As(err, &u) {
		return NotAnswering
	}
	switch u.Cause {
	case endpoint.NotRunning:
		return NotRunning
	case endpoint.Stale:
		return StaleSocket
	case endpoint.Starting:
		return Starting
	case endpoint.Forbidden:
		return Forbidden
	case endpoint.NotAnswering:
		return NotAnswering
	case endpoint.Imposter:
		return NotOurBroker
	}
	return UnsafeEndpoint
}

// lookAt describes what lies at a path and follows no link.
func lookAt(path string) *Node {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil
	}
	return &Node{Path: path, Type: typeOf(uint32(st.Mode)), Owner: int(st.Uid), Mode: fmt.Sprintf("%04o", st.Mode&0o7777),
		Device: uint64(st.Dev), Inode: st.Ino}
}

func typeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFREG:
		return "regular file"
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFIFO:
		return "named pipe"
	}
	return fs.FileMode(mode).Type().String()
}

func (n *Node) String() string {
	return fmt.Sprintf("%s: %s of uid %d, mode %s, inode %d", approval.Printable(n.Path), n.Type, n.Owner, n.Mode, n.Inode)
}

func (e Endpoint) findings() []Finding {
	found := "nothing at the socket's path"
	if e.Socket != nil {
		found = e.Socket.String()
	}
	if e.Directory != nil {
		found += fmt.Sprintf(" in a directory of uid %d, mode %s", e.Directory.Owner, e.Directory.Mode)
	}
	if e.Cause == "" {
		return []Finding{good("endpoint", found)}
	}
	if e.Socket == nil && e.Cause == NotRunning { // the error would say the same once more
		return []Finding{bad("endpoint", found, e.Cause)}
	}
	return []Finding{bad("endpoint", found+"; "+approval.Printable(e.Why), e.Cause)}
}
