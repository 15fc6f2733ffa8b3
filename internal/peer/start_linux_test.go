package peer

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helper is a process in a role.
type helper struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts program in a role and tears it down with the test.
func start(t testing.TB, program, role string, args ...string) *helper {
	t.Helper()
	return startCmd(t, exec.Command(program, args...), role)
}

func startCmd(t testing.TB, cmd *exec.Cmd, role string) *helper {
	t.Helper()
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	h := &helper{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		stuck.Stop()
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return h
}

func (h *helper) pid() int { return h.cmd.Process.Pid }

// line returns the next line that the helper says.
func (h *helper) line() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("helper ended: %v %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func (h *helper) expect(want string) {
	h.t.Helper()
	if got := h.line(); got != want {
		h.t.Fatalf("helper says %q, want %q", got, want)
	}
}

func (h *helper) order(line string) {
	h.t.Helper()
	if _, err := io.WriteString(h.in, line+"\n"); err != nil {
		h.t.Fatal(err)
	}
}

// obeys gives an order and waits until it is done.
func (h *helper) obeys(line string) {
	h.t.Helper()
	h.order(line)
	h.expect("ok")
}

// program returns this test's own program file.
func program(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// copyProgram makes another file with the same code, of the account that runs
// the test.
func copyProgram(t testing.TB, name string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), name)
	copyTo(t, to, 0o755)
	return to
}

func copyTo(t testing.TB, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	// A child forked between open and close would hold the file open for
	// writing for a moment, and an exec of it would fail with ETXTBSY.
	syscall.ForkLock.RLock()
	err = os.WriteFile(to, data, mode)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
}

// sharedDir makes a directory that other accounts can enter, wherever TMPDIR
// points, with a name short enough for sockets.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listen makes a socket as the broker does.
func listen(t testing.TB) (*net.UnixListener, string) {
	t.Helper()
	path := filepath.Join(sharedDir(t), "s")
	config := net.ListenConfig{Control: ListenControl}
	l, err := config.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	return l.(*net.UnixListener), path
}

func accept(t testing.TB, l *net.UnixListener) *net.UnixConn {
	t.Helper()
	l.SetDeadline(time.Now().Add(20 * time.Second))
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c
}

// connect starts a client and returns both ends.
func connect(t testing.TB, program string, args ...string) (*helper, *net.UnixConn) {
	t.Helper()
	l, path := listen(t)
	h := start(t, program, "client", slices.Insert(args, 0, path)...)
	c := accept(t, l)
	h.expect("ok")
	return h, c
}

func of(t testing.TB, c *net.UnixConn) *Process {
	t.Helper()
	p, err := Of(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// procOf opens the directory of a process that the test has started.
func procOf(t testing.TB, pid int) procDir {
	t.Helper()
	dir, err := openProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.close)
	return dir
}

// wait fails the test if the event does not come.
func wait(t testing.TB, event <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain: %s", what)
	}
}

const ordinary = 64901 // a uid and gid that nobody has

// everywhere runs body in an ordinary account, and as root too if root runs
// the tests.
func everywhere(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	asOrdinary(t, body)
	if os.Geteuid() == 0 {
		body(t)
	}
}

// asOrdinary runs body in an ordinary account: root reads everything and so
// sees no denial. Root starts this test again, from a copy in a directory
// that the account may read.
func asOrdinary(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		body(t)
		return
	}
	dir := sharedDir(t)
	own := filepath.Join(dir, "own")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Chown(own, ordinary, ordinary)); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "peer.test")
	copyTo(t, binary, 0o755)
	setuid := filepath.Join(dir, "setuid")
	copyTo(t, setuid, 0o755)
	if err := errors.Join(os.Chown(setuid, ordinary+1, ordinary+1), os.Chmod(setuid, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Dir = own
	cmd.Env = append(os.Environ(), "TMPDIR="+own, "HOME="+own, setuidVariable+"="+setuid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}, Pdeathsig: syscall.SIGKILL}
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Fatalf("as uid %d: %v\n%s", ordinary, err, output)
	}
}

// setuidVariable names a setuid copy of this program, which root has made.
const setuidVariable = "YETT_PEER_SETUID"
