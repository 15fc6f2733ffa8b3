package peer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/action"
)

// Parent returns the live process that started p. It refuses with
// ErrNoAttribution where the parent is not the one that started p, or stands
// for nobody: reparented, pid 1, a supervisor, another account.
func (p *Process) Parent() (*Process, error) {
	return parentOf(p.evidence.Kernel, func() (int, error) {
		var (
			id  identity
			err error
		)
		cerr := p.raw.Control(func(fd uintptr) {
			if id, err = identify(int(fd)); err == nil && !alive(int(fd)) {
				err = ErrGone
			}
		})
		if cerr != nil {
			return 0, cerr
		}
		return id.ppid, err
	})
}

// Parent returns the live process that started this one, by the same rules as
// Process.Parent. Its Done tells that the host of a shim has died, whoever
// else still holds the pipes.
func Parent() (*Process, error) {
	dir, err := openProc(os.Getpid())
	if err != nil {
		return nil, err
	}
	defer dir.close()
	stat, err := dir.stat()
	if err != nil {
		return nil, fmt.Errorf("reading about ourselves: %w", err)
	}
	self := action.KernelFacts{PID: os.Getpid(), UID: os.Geteuid(), StartTicks: stat.startTicks}
	return parentOf(self, func() (int, error) { return os.Getppid(), nil })
}

// parentOf asks for the parent's id, takes hold of that process, and asks
// again: if the id is still the same, it named this process all the while,
// since a child that outlives its parent gets another.
func parentOf(child action.KernelFacts, ppid func() (int, error)) (*Process, error) {
	pid, err := ppid()
	if err != nil {
		return nil, noAttribution("asking for the parent: %w", err)
	}
	if pid <= 1 {
		return nil, noAttribution("the parent is pid %d: nobody, or not the one that started it", pid)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, noAttribution("taking hold of the parent: %w", err)
	}
	parent, err := hold(fd)
	if err != nil {
		return nil, err
	}
	again, err := ppid()
	switch {
	case err != nil:
		err = noAttribution("asking for the parent again: %w", err)
	case again != pid || !parent.Alive():
		err = noAttribution("the parent went away")
	default:
		err = judgeParent(child, parent)
	}
	if err != nil {
		parent.Close()
		return nil, err
	}
	return parent, nil
}

// judgeParent can only refuse. Whoever starts after its child has adopted it.
func judgeParent(child action.KernelFacts, parent *Process) error {
	k := parent.evidence.Kernel
	switch {
	case k.StartTicks > child.StartTicks:
		return noAttribution("process %d adopted it", k.PID)
	case parent.initial:
		return noAttribution("the parent is pid 1 of its pid namespace")
	case supervises(k.ExePath, parent.comm):
		return noAttribution("the parent is a supervisor (%q)", parent.comm)
	case k.UID != child.UID:
		return noAttribution("the parent is of user %d, not %d", k.UID, child.UID)
	}
	return nil
}
