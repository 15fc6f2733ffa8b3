package peer

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/action"
)

// maxAncestors bounds the walk: a process can make its chain as long as it
// likes.
const maxAncestors = 64

// Kinship says whether two live processes share a controlling terminal, and
// how they descend from each other. It fails with ErrGone if one of them has
// exited. It says what the kernel says now: see action.Kinship for all that
// this does not prove.
func Kinship(a, b *Process) (action.Kinship, error) {
	var k action.Kinship
	as, err := a.lineage()
	if err != nil {
		return k, fmt.Errorf("following the ancestors of process %d: %w", a.PID(), err)
	}
	bs, err := b.lineage()
	if err != nil {
		return k, fmt.Errorf("following the ancestors of process %d: %w", b.PID(), err)
	}
	k = relate(as, bs)
	k.Cut = as.cut || bs.cut
	if as.tty != 0 && as.tty == bs.tty && as.session == bs.session {
		k.Terminal = ttyName(as.tty)
	}
	// A was read first: still alive now, it lived all the while.
	if !a.Alive() {
		return action.Kinship{}, fmt.Errorf("following the ancestors of process %d: %w", a.PID(), ErrGone)
	}
	return k, nil
}

// lineage is a process and its ancestors, nearest first, up to whoever adopts
// orphans.
type lineage struct {
	line         []ancestor
	cut          bool
	tty, session int
}

// ancestor is one process of a line, by what names it uniquely: two chains
// that are read one after the other never meet in a mere number.
type ancestor struct {
	pid   int
	inode uint64 // 0 before kernel 6.9
	start uint64

	name    string
	program string // its path; "" if it is hidden
}

func (x ancestor) is(y ancestor) bool {
	return x.pid == y.pid && x.inode == y.inode && x.start == y.start
}

// Line names p and its ancestors, nearest first, as far as Kinship follows them.
func (p *Process) Line() ([]Name, error) {
	l, err := p.lineage()
	if err != nil {
		return nil, fmt.Errorf("following the ancestors of process %d: %w", p.PID(), err)
	}
	names := make([]Name, len(l.line))
	for i, x := range l.line {
		names[i] = Name{x.pid, x.inode, x.start}
	}
	return names, nil
}

func relate(as, bs lineage) action.Kinship {
	for i, x := range as.line {
		j := slices.IndexFunc(bs.line, x.is)
		switch {
		case j < 0:
			continue
		case i == 0 && j == 0:
			return action.Kinship{Relation: action.KinSame}
		case j == 0:
			return action.Kinship{Relation: action.KinDescendant}
		case i == 0:
			return action.Kinship{Relation: action.KinAncestor}
		}
		return action.Kinship{Relation: action.KinCommon, Through: &action.Kinsman{PID: x.pid, Name: x.name}}
	}
	return action.Kinship{Relation: action.KinNone}
}

// lineage follows the parents of p. An ancestor that cannot be held or looked
// at cuts the line; only the death of p itself is an error.
func (p *Process) lineage() (l lineage, err error) {
	cerr := p.raw.Control(func(fd uintptr) { l, err = lineageOf(int(fd), maxAncestors) })
	if cerr != nil {
		return l, cerr
	}
	return l, err
}

func lineageOf(fd, limit int) (lineage, error) {
	self, stat, err := lookAt(fd)
	if err != nil {
		return lineage{}, err
	}
	l := lineage{line: []ancestor{self}, tty: stat.tty, session: stat.session}
	at := fd
	defer func() {
		if at != fd {
			unix.Close(at)
		}
	}()
	for {
		parent, ok := holdParent(at)
		if parent < 0 {
			l.cut = !ok
			break
		}
		if at != fd {
			unix.Close(at)
		}
		at = parent
		x, stat, err := lookAt(at)
		if err != nil || len(l.line) > limit {
			l.cut = true
			break
		}
		if stat.initial || supervises(x.name) { // kin of everybody
			break
		}
		l.line = append(l.line, x)
	}
	if !alive(fd) {
		return lineage{}, ErrGone
	}
	return l, nil
}

// holdParent takes hold of the parent of the process behind fd. The parent is
// -1 where the line ends; ok says whether that is its true end: pid 1 of our
// namespace is left out, and what lies outside of it cannot be seen.
func holdParent(fd int) (parent int, ok bool) {
	for range 3 {
		before, err := identify(fd)
		if err != nil {
			return -1, false
		}
		if before.ppid <= 1 {
			return -1, true
		}
		parent, err := unix.PidfdOpen(before.ppid, 0)
		if err == nil {
			after, err := identify(fd)
			if err == nil && after.ppid == before.ppid && alive(parent) {
				return parent, true
			}
			unix.Close(parent)
		}
	}
	return -1, false
}

// kinStat is what a line needs of one process.
type kinStat struct {
	tty, session int
	initial      bool
}

// lookAt names the process behind fd and reads its terminal, between the poll
// of identify and one more.
func lookAt(fd int) (ancestor, kinStat, error) {
	id, err := identify(fd)
	if err != nil {
		return ancestor{}, kinStat{}, err
	}
	dir, err := openProc(id.pid)
	if err != nil && !alive(fd) {
		err = ErrGone
	}
	if err != nil {
		return ancestor{}, kinStat{}, err
	}
	defer dir.close()
	inode, inodeErr := pidfsInode(fd)
	img, _ := dir.image() // for people
	stat, statErr := dir.stat()
	status, statusErr := dir.status()
	if !alive(fd) {
		return ancestor{}, kinStat{}, ErrGone
	}
	for _, err := range []error{inodeErr, statErr, statusErr} {
		if err != nil {
			return ancestor{}, kinStat{}, err
		}
	}
	x := ancestor{pid: id.pid, inode: inode, start: stat.startTicks, name: stat.comm, program: img.path}
	initial := id.pid == 1 || status.nspid[len(status.nspid)-1] == 1
	return x, kinStat{tty: stat.tty, session: stat.session, initial: initial}, nil
}
