package selftest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/yett-broker/yett/internal/peer"
)

// portable are the checks that ask the same of every system.
func portable() []trial {
	return []trial{
		{"floor", func(context.Context, *setting) (string, error) {
			if err := peer.Floor(); err != nil {
				return "", skipped("yett serve refuses here: " + err.Error())
			}
			return "yett serve may run here", nil
		}},
		{"peer", tryPeer},
		{"peer: its parent", tryParent},
		{"peer: digest of its program", tryDigest},
		{"peer: exit is noticed", tryExit},
		{"peer: exec is noticed", tryExec},
		{"peer: a program replaced on disk is noticed", tryReplaced},
		{"peer: another writer on its descriptor is refused", tryPassed},
	}
}

// Roles of a process that yett selftest starts to play the other side.
const (
	RoleConnect = "connect" // connects, writes a byte and waits for the end
	RoleExec    = "exec"    // and becomes another program when told to
	RolePass    = "pass"    // and lets a child of its own write
	RoleWrite   = "write"   // that child: writes on its descriptor 3

	RoleLaunched = "launched" // started by launchd: takes its socket over and answers (macOS)
)

// Play is what the program does as the other side. It returns its exit code.
func Play(role, socket string) int {
	if err := play(role, socket); err != nil {
		fmt.Fprintln(os.Stderr, "yett selftest:", err)
		return 1
	}
	return 0
}

func play(role, socket string) error {
	switch role {
	case RoleWrite:
		_, err := os.NewFile(3, "inherited").Write([]byte("w"))
		return err
	case RoleLaunched:
		return playLaunched()
	}
	c, err := net.DialTimeout("unix", socket, deadline)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(deadline))
	if _, err := c.Write([]byte("c")); err != nil {
		return err
	}
	told := make([]byte, 1)
	if _, err := io.ReadFull(c, told); err != nil {
		return nil // the end
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	switch role {
	case RoleExec:
		syscall.CloseOnExec(3) // its end tells that the exec is done
		return syscall.Exec("/bin/sleep", []string{"sleep", "10"}, nil)
	case RolePass:
		f, err := c.(*net.UnixConn).File()
		if err != nil {
			return err
		}
		child := exec.Command(self, "selftest", "--role", RoleWrite)
		child.ExtraFiles, child.Stderr = []*os.File{f}, os.Stderr
		return child.Run()
	}
	return fmt.Errorf("there is no role %q", role)
}

// other is the other side, connected and named by the kernel.
type other struct {
	cmd    *exec.Cmd
	conn   *net.UnixConn
	peer   *peer.Process
	exec   *os.File // reads its end when the other side has exec'd or exited
	stderr bytes.Buffer
}

// connect starts the other side and takes its evidence.
func connect(ctx context.Context, s *setting, role string) (*other, error) {
	path := filepath.Join(s.dir, role+".sock")
	lc := net.ListenConfig{Control: peer.ListenControl}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	defer l.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	o := &other{exec: r}
	o.cmd = exec.CommandContext(ctx, s.program, "selftest", "--role", role, "--socket", path)
	o.cmd.Stderr = &o.stderr
	o.cmd.Env = []string{}
	if role == RoleExec {
		o.cmd.ExtraFiles = []*os.File{w}
	}
	if err := o.cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("starting the other side: %w", err)
	}
	if d, ok := ctx.Deadline(); ok {
		l.(*net.UnixListener).SetDeadline(d)
	}
	c, err := l.Accept()
	if err == nil {
		o.conn = c.(*net.UnixConn)
		if d, ok := ctx.Deadline(); ok {
			o.conn.SetDeadline(d)
		}
		o.peer, err = peer.Of(o.conn)
	}
	if err != nil {
		o.close()
		return nil, fmt.Errorf("taking the evidence of who connected: %w", err)
	}
	return o, nil
}

func (o *other) close() {
	if o.peer != nil {
		o.peer.Close()
	}
	if o.conn != nil {
		o.conn.Close()
	}
	o.exec.Close()
	o.cmd.Process.Kill()
	o.cmd.Wait()
}

// execs has the other side become another program, and waits until it has.
func (o *other) execs(ctx context.Context) error {
	if _, err := o.conn.Write([]byte("x")); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok {
		o.exec.SetReadDeadline(d)
	}
	if _, err := o.exec.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("the other side did not become another program: %v", err)
	}
	return nil
}

func tryPeer(ctx context.Context, s *setting) (string, error) {
	o, err := connect(ctx, s, RoleConnect)
	if err != nil {
		return "", err
	}
	defer o.close()
	k := o.peer.Evidence().Kernel
	file, err := os.Stat(s.program)
	if err != nil {
		return "", err
	}
	st := file.Sys().(*syscall.Stat_t)
	switch {
	case k.PID != o.cmd.Process.Pid:
		return "", fmt.Errorf("the kernel names process %d, want %d", k.PID, o.cmd.Process.Pid)
	case k.UID != os.Geteuid():
		return "", fmt.Errorf("the kernel names user %d, want %d", k.UID, os.Geteuid())
	case !o.peer.SameExecutable(uint64(st.Dev), st.Ino):
		return "", fmt.Errorf("the kernel does not say that it runs this program: state %q", k.ExeState)
	}
	if err := o.peer.Recheck(); err != nil {
		return "", err
	}
	return "the process, the account and the program are named, and hold", nil
}

func tryParent(ctx context.Context, s *setting) (string, error) {
	o, err := connect(ctx, s, RoleConnect)
	if err != nil {
		return "", err
	}
	defer o.close()
	parent, err := o.peer.Parent()
	if err != nil {
		return "", err
	}
	defer parent.Close()
	if parent.PID() != os.Getpid() {
		return "", fmt.Errorf("process %d, want this one", parent.PID())
	}
	return "this process", nil
}

func tryDigest(ctx context.Context, s *setting) (string, error) {
	o, err := connect(ctx, s, RoleConnect)
	if err != nil {
		return "", err
	}
	defer o.close()
	raw, err := os.ReadFile(s.program)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	o.peer.Hash(ctx)
	if f := o.peer.Evidence().Filesystem; f.SHA256 != hex.EncodeToString(sum[:]) {
		return "", fmt.Errorf("it is %q (%s), want %x", f.SHA256, f.NotHashed, sum)
	}
	return "that of the file", nil
}

func tryExit(ctx context.Context, s *setting) (string, error) {
	o, err := connect(ctx, s, RoleConnect)
	if err != nil {
		return "", err
	}
	defer o.close()
	o.cmd.Process.Kill()
	select {
	case <-o.peer.Done():
	case <-ctx.Done():
		return "", errors.New("nothing was told of it in time")
	}
	if err := o.peer.Recheck(); !errors.Is(err, peer.ErrGone) {
		return "", fmt.Errorf("a look at it says %v", err)
	}
	return "told, and a look says that it has gone", nil
}

func tryExec(ctx context.Context, s *setting) (string, error) {
	o, err := connect(ctx, s, RoleExec)
	if err != nil {
		return "", err
	}
	defer o.close()
	if err := o.execs(ctx); err != nil {
		return "", err
	}
	if err := o.peer.Recheck(); !errors.Is(err, peer.ErrChanged) {
		return "", fmt.Errorf("a look at it says %v", err)
	}
	return "a look says that it has changed", nil
}

// tryReplaced puts another program where the other side was started from, as an
// update does: its evidence is that of the running image, and says so.
func tryReplaced(ctx context.Context, s *setting) (string, error) {
	copied := *s
	copied.program = filepath.Join(s.dir, "replaced")
	if err := copyFile(copied.program, s.program); err != nil {
		return "", err
	}
	o, err := connect(ctx, &copied, RoleConnect)
	if err != nil {
		return "", err
	}
	defer o.close()
	if words := peer.Words(o.peer.Evidence()); slices.Contains(words, "program replaced on disk") {
		return "", errors.New("it is said to be replaced before it is")
	}
	other := filepath.Join(s.dir, "other")
	if err := copyFile(other, "/bin/sleep"); err != nil {
		return "", err
	}
	if err := os.Rename(other, copied.program); err != nil {
		return "", err
	}
	again, err := peer.Of(o.conn)
	if err != nil {
		return "", err
	}
	defer again.Close()
	if words := peer.Words(again.Evidence()); !slices.Contains(words, "program replaced on disk") {
		return "", fmt.Errorf("evidence that was taken afterwards says %q", words)
	}
	return "evidence that is taken afterwards says so", o.peer.Recheck()
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o700)
}

func tryPassed(ctx context.Context, s *setting) (string, error) {
	o, err := connect(ctx, s, RolePass)
	if err != nil {
		return "", err
	}
	defer o.close()
	r, b := peer.NewReader(o.conn, o.cmd.Process.Pid), make([]byte, 1)
	if _, err := r.Read(b); err != nil || b[0] != 'c' {
		return "", fmt.Errorf("its own byte reads as %q, %v", b, err)
	}
	if _, err := o.conn.Write([]byte("x")); err != nil {
		return "", err
	}
	if _, err := r.Read(b); !errors.Is(err, peer.ErrSender) {
		return "", fmt.Errorf("the byte of its child reads as %q, %v", b, err)
	}
	return "its own bytes are read, its child's are not", nil
}
