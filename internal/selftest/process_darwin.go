package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/macos"
	"github.com/yett-broker/yett/internal/macos/system"
)

// tryTokenAfterExec: the number stays, the version rises, and the kernel no
// longer answers for the token of before.
func tryTokenAfterExec(ctx context.Context, s *setting) (string, error) {
	k, _, err := open()
	if err != nil {
		return "", err
	}
	o, err := connect(ctx, s, RoleExec)
	if err != nil {
		return "", err
	}
	defer o.close()
	before, err := k.TokenOf(o.cmd.Process.Pid)
	if err != nil {
		return "", err
	}
	if err := o.execs(ctx); err != nil {
		return "", err
	}
	after, err := k.TokenOf(o.cmd.Process.Pid)
	if err != nil {
		return "", err
	}
	if after.PID() != before.PID() || after.Version() == before.Version() {
		return "", fmt.Errorf("before %v, after %v", before, after)
	}
	if path, err := k.Path(before); err == nil {
		return "", fmt.Errorf("the token of before still names %q", path)
	}
	if _, _, err := k.Signature(before); err == nil {
		return "", errors.New("the token of before still has a signature")
	}
	return fmt.Sprintf("version %d, then %d", before.Version(), after.Version()), nil
}

// tryTokenOfShared: a child of the other side writes on its descriptor, and the
// kernel then names the child.
func tryTokenOfShared(ctx context.Context, s *setting) (string, error) {
	k, _, err := open()
	if err != nil {
		return "", err
	}
	o, err := connect(ctx, s, RolePass)
	if err != nil {
		return "", err
	}
	defer o.close()
	token := func() (t macos.Token, err error) {
		raw, err := o.conn.SyscallConn()
		if err != nil {
			return t, err
		}
		cerr := raw.Control(func(fd uintptr) { t, err = k.PeerToken(int(fd)) })
		return t, errors.Join(cerr, err)
	}
	before, err := token()
	if err != nil {
		return "", err
	}
	both := make([]byte, 2)
	if _, err := io.ReadFull(o.conn, both[:1]); err != nil {
		return "", err
	}
	if _, err := o.conn.Write([]byte("x")); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(o.conn, both[1:]); err != nil {
		return "", err
	}
	after, err := token()
	if err != nil {
		return "", err
	}
	if before.PID() != o.cmd.Process.Pid || after == before {
		return "", fmt.Errorf("%q by %v, then %v", both, before, after)
	}
	return fmt.Sprintf("%v, then %v", before, after), nil
}

// tryKqueue watches a shell that becomes another program and is ended.
func tryKqueue(ctx context.Context, _ *setting) (string, error) {
	child := exec.CommandContext(ctx, "/bin/sh", "-c", "read x && exec /bin/sleep 10")
	in, err := child.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := child.Start(); err != nil {
		return "", err
	}
	defer child.Wait()
	defer child.Process.Kill()
	queue, err := unix.Kqueue()
	if err != nil {
		return "", fmt.Errorf("kqueue: %w", err)
	}
	defer unix.Close(queue)
	change := make([]unix.Kevent_t, 1)
	unix.SetKevent(&change[0], child.Process.Pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_CLEAR)
	change[0].Fflags = unix.NOTE_EXIT | unix.NOTE_EXEC
	if _, err := unix.Kevent(queue, change, nil, nil); err != nil {
		return "", fmt.Errorf("kevent: %w", err)
	}
	next := func(want uint32) error {
		wait := unix.NsecToTimespec(int64(deadline / 2))
		events := make([]unix.Kevent_t, 1)
		n, err := unix.Kevent(queue, nil, events, &wait)
		if err != nil {
			return fmt.Errorf("kevent: %w", err)
		}
		if n != 1 || events[0].Fflags&want == 0 {
			return fmt.Errorf("%d events, %#x, want %#x", n, events[0].Fflags, want)
		}
		return nil
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		return "", err
	}
	if err := next(unix.NOTE_EXEC); err != nil {
		return "", fmt.Errorf("the exec: %w", err)
	}
	child.Process.Kill()
	if err := next(unix.NOTE_EXIT); err != nil {
		return "", fmt.Errorf("the exit: %w", err)
	}
	return "NOTE_EXEC, NOTE_EXIT", nil
}

// tryNode names a runtime as it is installed here.
func tryNode(ctx context.Context, _ *setting) (string, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return "", skipped("node is not on the PATH")
	}
	k, c, err := open()
	if err != nil {
		return "", err
	}
	child := exec.CommandContext(ctx, path, "-e", "setTimeout(() => {}, 10000)")
	if err := child.Start(); err != nil {
		return "", err
	}
	defer child.Wait()
	defer child.Process.Kill()
	t, err := k.TokenOf(child.Process.Pid)
	if err != nil {
		return "", err
	}
	flags, signature, err := system.Identify(k, c, t)
	if err != nil {
		return "", fmt.Errorf("flags %#x: %w", uint32(flags), err)
	}
	return fmt.Sprintf("%s, %q, team %q, flags %#x, %s", signature.Signer, signature.Identifier, signature.Team, uint32(flags),
		strings.Join(flags.Words(), ", ")), nil
}

// trySleep registers, is told nothing since nothing sleeps, and lets go.
func trySleep(context.Context, *setting) (string, error) {
	p, err := system.OpenPower(system.IOKit, system.LibSystem)
	if err != nil {
		return "", err
	}
	stop, err := p.Hear(func(bool, func()) {})
	if err != nil {
		return "", err
	}
	time.Sleep(100 * time.Millisecond) // a queue that crashes does so now
	stop()
	return "registered with IOKit and let go; no sleep was tried", nil
}

func tryScreen(context.Context, *setting) (string, error) {
	s, err := system.OpenScreen(system.CoreGraphics, system.CoreFoundation)
	if err != nil {
		return "", err
	}
	locked, err := s.Locked()
	if errors.Is(err, system.ErrNoScreen) {
		return "", skipped(err.Error())
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("locked: %t", locked), nil
}
