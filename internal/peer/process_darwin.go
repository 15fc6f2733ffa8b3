package peer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/macos"
	"github.com/yett-broker/yett/internal/macos/system"
)

// libraries are opened once. Without them every question is refused.
var libraries = sync.OnceValues(func() (libs struct {
	kernel *system.Kernel
	code   *system.Code
}, err error) {
	if libs.kernel, err = system.OpenKernel(system.LibSystem); err != nil {
		return libs, err
	}
	libs.code, err = system.OpenCode(system.CoreFoundation, system.Security)
	return libs, err
})

// Process is one live process between two execs, held by its audit token and
// watched by kqueue, with the evidence that was taken when it was first held.
type Process struct {
	token     macos.Token
	bracket   *macos.Bracket // nil for a process that is not at the end of a socket
	signature macos.Signature
	kernel    *system.Kernel
	watch     *processWatch

	hashing sync.Mutex
	hashed  bool

	mu       sync.Mutex
	evidence action.Process
}

// socketToken asks the kernel who used the other end of a socket last.
type socketToken struct {
	kernel *system.Kernel
	raw    syscall.RawConn
}

func (s socketToken) PeerToken() (t macos.Token, err error) {
	if cerr := s.raw.Control(func(fd uintptr) { t, err = s.kernel.PeerToken(int(fd)) }); cerr != nil {
		return t, cerr
	}
	return t, err
}

// Of takes the evidence of the process at the other end of c.
func Of(c *net.UnixConn) (*Process, error) {
	libs, err := libraries()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	var cred *unix.Xucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED) })
	if err := errors.Join(cerr, err); err != nil {
		return nil, noAttribution("asking who connected: %w", err)
	}
	b, err := macos.NewBracket(socketToken{libs.kernel, raw})
	if err != nil {
		return nil, noAttribution("%w", err)
	}
	if int(cred.Uid) != b.Token().UID() {
		return nil, noAttribution("the socket and the process name different accounts")
	}
	return hold(b.Token(), b)
}

// hold takes the evidence of the process of a token, and then looks whether the
// token still holds: what was read in between is then about this process.
func hold(t macos.Token, b *macos.Bracket) (*Process, error) {
	libs, err := libraries()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	p := &Process{token: t, bracket: b, kernel: libs.kernel}
	if p.watch, err = watchProcess(t.PID()); err != nil {
		return nil, noAttribution("watching process %d: %w", t.PID(), err)
	}
	if err := p.read(libs.code); err != nil {
		p.Close()
		return nil, noAttribution("%w", err)
	}
	return p, nil
}

func (p *Process) read(code *system.Code) error {
	info, err := p.kernel.Info(p.token.PID())
	if err != nil {
		return err
	}
	path, err := p.kernel.Path(p.token)
	if err != nil {
		return err
	}
	status, signature, err := system.Identify(p.kernel, code, p.token)
	if err != nil {
		return err
	}
	p.signature = signature
	k := action.KernelFacts{PID: info.PID, StartTicks: info.StartTicks(), UID: p.token.UID(), GID: p.token.GID(), PPID: info.PPID,
		ExePath: path, ExeState: exeFile,
		Code: &action.CodeFacts{Signer: string(signature.Signer), Identifier: signature.Identifier, Team: signature.Team,
			CDHash: signature.CDHash.String(), Words: status.Words()}}
	if info.Traced() {
		k.TracerPID = info.PPID // the kernel says that, not by whom
	}
	if boot, err := unix.SysctlTimeval("kern.boottime"); err == nil {
		k.BootID = fmt.Sprint(boot.Unix())
	}
	p.evidence.Kernel = k
	p.readFile()
	return p.Recheck()
}

// readFile looks at the program's file. It is the running program only if it
// holds the very code that the kernel named.
func (p *Process) readFile() {
	k := &p.evidence.Kernel
	f, err := os.OpenFile(k.ExePath, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		k.ExeState = exeReplaced
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		k.ExeState = exeReplaced
		return
	}
	k.ExeDevice, k.ExeInode = uint64(st.Dev), st.Ino
	p.evidence.Filesystem = action.FileFacts{Size: st.Size, Owner: int(st.Uid), Mode: fmt.Sprintf("%04o", st.Mode&0o7777)}
	if !holdsCode(f, st.Size, p.signature.CDHash) {
		k.ExeState = exeReplaced
	}
}

// holdsCode reports whether a file holds this code, for any architecture.
func holdsCode(f io.ReaderAt, size int64, want macos.CDHash) bool {
	all, _ := macos.ReadCode(f, size) // of a file that is none there is no code
	for _, c := range all {
		if c.CDHash == want && c.Verify() == nil {
			return true
		}
	}
	return false
}

// PID is the process id, for display.
func (p *Process) PID() int { return p.token.PID() }

// Evidence returns what was read when the process was first held.
func (p *Process) Evidence() action.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.evidence
}

// Done is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.watch.exited }

// Alive reports whether the process has neither exited nor exec'd.
func (p *Process) Alive() bool { return p.watch.state() == nil }

// Recheck asks whether the evidence still holds: no exit, no exec, the same
// token at the socket, and the kernel still answers for that token.
func (p *Process) Recheck() error {
	if err := p.watch.state(); err != nil {
		return err
	}
	if p.bracket != nil {
		if err := p.bracket.Look(macos.BeforeRelease); err != nil {
			return fmt.Errorf("%w: %w", ErrChanged, err)
		}
	}
	// Asked by token: an answer is about this process between these execs.
	if _, err := p.kernel.Path(p.token); err != nil {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return p.watch.state()
}

// Parent returns the live process that started p. macOS gives an orphan to
// launchd, so a parent that is neither stands for nobody else.
func (p *Process) Parent() (*Process, error) {
	info, err := p.kernel.Info(p.PID())
	if err != nil {
		return nil, noAttribution("asking for the parent: %w", err)
	}
	parent, err := parentOf(info, func() (int, error) {
		again, err := p.kernel.Info(p.PID())
		return again.PPID, errors.Join(err, p.Recheck())
	})
	return parent, err
}

// Parent returns the live process that started this one.
func Parent() (*Process, error) {
	libs, err := libraries()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	info, err := libs.kernel.Info(os.Getpid())
	if err != nil {
		return nil, noAttribution("asking for the parent: %w", err)
	}
	return parentOf(info, func() (int, error) { return os.Getppid(), nil })
}

// parentOf takes hold of the parent and asks again whether it still is one.
func parentOf(child macos.ProcessInfo, ppid func() (int, error)) (*Process, error) {
	if child.ParentLost {
		return nil, noAttribution("the parent is pid %d: nobody, or not the one that started it", child.PPID)
	}
	libs, err := libraries()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	t, err := libs.kernel.TokenOf(child.PPID)
	if err != nil {
		return nil, noAttribution("taking hold of the parent: %w", err)
	}
	parent, err := hold(t, nil)
	if err != nil {
		return nil, err
	}
	again, err := ppid()
	k := parent.evidence.Kernel
	switch {
	case err != nil:
		err = noAttribution("asking for the parent again: %w", err)
	case again != child.PPID || !parent.Alive():
		err = noAttribution("the parent went away")
	case k.StartTicks > child.StartTicks():
		err = noAttribution("process %d adopted it", k.PID)
	case supervises(k.ExePath, ""):
		err = noAttribution("the parent is a supervisor (%q)", k.ExePath)
	case k.UID != child.UID:
		err = noAttribution("the parent is of user %d, not %d", k.UID, child.UID)
	}
	if err != nil {
		parent.Close()
		return nil, err
	}
	return parent, nil
}

// SameExecutable reports whether the process runs the code of this very file.
func (p *Process) SameExecutable(dev, ino uint64) bool {
	k := p.Evidence().Kernel
	return k.ExeState == exeFile && k.ExeInode != 0 && k.ExeDevice == dev && k.ExeInode == ino
}

// Hash fills in the SHA-256 of the program's file. The code-directory hash is
// the kernel's own word on the running image; this one is for people who look a
// program up.
func (p *Process) Hash(ctx context.Context) {
	p.hashing.Lock()
	defer p.hashing.Unlock()
	if p.hashed {
		return
	}
	p.hashed = true
	digest, err := p.hashFile(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.evidence.Filesystem.NotHashed = err.Error()
		return
	}
	p.evidence.Filesystem.SHA256 = digest
}

func (p *Process) hashFile(ctx context.Context) (string, error) {
	k := p.Evidence().Kernel
	if k.ExeState != exeFile {
		return "", errors.New("program replaced on disk")
	}
	f, err := os.OpenFile(k.ExePath, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", errors.New("the program's file cannot be read")
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || uint64(st.Dev) != k.ExeDevice || st.Ino != k.ExeInode {
		return "", errors.New("program replaced on disk")
	}
	const sizeCap, chunk = 1 << 30, 1 << 20
	if st.Size > sizeCap {
		return "", fmt.Errorf("more than %d bytes", sizeCap)
	}
	h := sha256.New()
	for at := int64(0); at < st.Size; at += chunk {
		if ctx.Err() != nil {
			return "", errors.New("no time left")
		}
		if _, err := io.Copy(h, io.NewSectionReader(f, at, min(chunk, st.Size-at))); err != nil {
			return "", errors.New("the program's file cannot be read")
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Close lets go of the process; it does nothing to it.
func (p *Process) Close() error { return p.watch.close() }

// Signature is the proven signature in one line, for the self-test.
func (p *Process) Signature() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.signature.Signer, p.signature.Identifier, p.signature.CDHash))
}
