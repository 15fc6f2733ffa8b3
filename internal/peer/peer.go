// Package peer asks the kernel who is at the other end of a unix socket, and
// keeps asking for as long as the answer matters.
//
// It trusts the kernel and nothing else. A process is held by a pidfd from the
// moment it is named, so a number can never come to mean another process. What
// the kernel answered, what the file system says and what the process itself
// chose (its arguments, its directory) are kept apart in action.Process. A
// fact that cannot be had is an error or a word on the card, never a guess:
// partial evidence is no evidence.
//
// Whether a process lives is decided by polling its pidfd, never by an errno
// or by whether /proc could be read: after a reap kernels differ in both, and
// SO_PEERCRED goes on naming the dead process.
//
// What this package cannot see:
//
//   - a process that runs the right file but other code: preloaded libraries,
//     runtime options, a debugger that came later or has left again;
//   - a process that chose which file /proc names as its program. Any process
//     may, in a user namespace of its own, where it has no attribution; but a
//     child that shares its memory (CLONE_VM) can go there and do it for it,
//     where accounts may make user namespaces (seen on Linux 6.18). It may so
//     hide an exec as well;
//   - an exec from one hidden program to another, and one of the same file
//     that arranges to look the same (see space);
//   - a child of the agent that was started by another process: CLONE_PARENT,
//     or an orphan that the agent adopts.
//
// Each is a process of the account that imitates another or is the agent's own
// offspring; none has more than a session and a card of its own. A dead
// process that another one speaks for on an inherited descriptor is caught by
// Reader together with Recheck; neither is enough alone.
//
// The programs that stand for other code (runtimes, shells, wrappers, package
// runners) or for nobody (supervisors) are the table programs.txt, one row a
// line: kind | names | source.
package peer

import (
	"errors"
	"fmt"

	"github.com/yett-broker/yett/internal/action"
)

// Name tells a process from every other since the system was started.
type Name struct {
	PID   int
	Inode uint64 // of its pidfd; 0 before Linux 6.9
	Start uint64
}

// NameOf names the process of an evidence.
func NameOf(p action.Process) Name {
	return Name{p.Kernel.PID, p.Kernel.PidfsInode, p.Kernel.StartTicks}
}

var (
	// ErrUnsupported means that this system cannot give the evidence at all.
	ErrUnsupported = errors.New("no caller evidence on this system")
	// ErrNoAttribution means that the kernel names no live process that may
	// stand for the caller; the wrapped text says why.
	ErrNoAttribution = errors.New("no attribution")
	// ErrGone means that the process has exited.
	ErrGone = errors.New("the process has exited")
	// ErrChanged means that the process lives but is no longer what the
	// evidence says: another program or another account.
	ErrChanged = errors.New("the process has changed")
	// ErrSender means that bytes came from somebody else than the peer.
	ErrSender = errors.New("message from another sender")
	// ErrDescriptor is the ErrSender of a message that carried descriptors.
	ErrDescriptor = fmt.Errorf("%w: a descriptor came with it", ErrSender)
	// ErrIntruded means that somebody opened the pipe of standard input or
	// output.
	ErrIntruded = errors.New("another process opened the pipe")
	// ErrLineTooLong means that no newline came within the limit.
	ErrLineTooLong = errors.New("line too long")
)

// SenderError is an ErrSender whose sender the kernel named. Want and Got are
// process ids; Got is 0 for a sender that has no id here.
type SenderError struct {
	Want, Got       int
	WantUID, GotUID int // set where the accounts differ and the ids do not
}

func (e *SenderError) Error() string {
	if e.Want == e.Got {
		return fmt.Sprintf("%v: process %d writes as user %d, connected as user %d", ErrSender, e.Got, e.GotUID, e.WantUID)
	}
	return fmt.Sprintf("%v: process %d, want process %d", ErrSender, e.Got, e.Want)
}

// Is makes errors.Is(err, ErrSender) true.
func (e *SenderError) Is(target error) bool { return target == ErrSender }

// States of an executable, as in action.KernelFacts.ExeState.
const (
	exeFile     = "file"     // the link and the running image are one file
	exeHidden   = "hidden"   // the kernel does not let this account see it
	exeReplaced = "replaced" // deleted, or another file lies at its path
	exeMemory   = "memory"   // a memfd: there never was a file
)

// Words returns the states of p that a person must read before saying yes, in
// a fixed order. It is empty for an ordinary program. Whether a program is
// hashed is known once Process.Hash has run.
func Words(p action.Process) []string {
	var words []string
	switch p.Kernel.ExeState {
	case exeHidden:
		words = append(words, "program hidden")
	case exeReplaced:
		words = append(words, "program replaced on disk")
	case exeMemory:
		words = append(words, "runs from memory")
	}
	if why := p.Filesystem.NotHashed; why != "" && p.Kernel.ExeState != exeHidden {
		words = append(words, "program not hashed: "+why)
	}
	if p.Claimed.Runtime != "" {
		words = append(words, runtimeWord(p.Claimed.Runtime))
	}
	if p.Kernel.Container {
		words = append(words, "container")
	}
	if p.Kernel.TracerPID != 0 {
		words = append(words, fmt.Sprintf("traced by pid %d", p.Kernel.TracerPID))
	}
	return words
}

func noAttribution(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrNoAttribution, fmt.Errorf(format, args...))
}
