package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests look at real processes: this binary, started again in a role.
const roleVariable = "YETT_PEER_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	play, ok := roles[role]
	if !ok {
		fatal(fmt.Errorf("no role %q", role))
	}
	if err := play(os.Args[1:]); err != nil {
		fatal(err)
	}
	os.Exit(0)
}

func fatal(err error) {
	fmt.Println("error:", err)
	os.Exit(3)
}

var roles map[string]func(args []string) error

func init() { // the roles start each other
	roles = map[string]func(args []string) error{
		"idle":      playIdle,
		"client":    playClient,
		"writer":    playWriter,
		"late":      playLate,
		"taker":     playTaker,
		"opener":    playOpener,
		"memory":    playMemory,
		"host":      playHost,
		"leave":     playLeave,
		"subreaper": playSubreaper,
		"recycle":   playRecycle,
		"stdio":     playStdio,
		"shim":      playShim,
		"judge":     playJudge,
	}
}

// playIdle lives until its standard input ends.
func playIdle([]string) error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// again prepares this program for another role, with our stdio.
func again(role string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		fatal(err)
	}
	cmd := exec.Command(strings.TrimSuffix(self, " (deleted)"), args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	return cmd
}

// playClient connects to args[0], first hiding itself if args[1] says so, and
// obeys the lines of its standard input, answering "ok" to each.
func playClient(args []string) error {
	if len(args) > 1 && args[1] == "hidden" {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	}
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	conn := c.(*net.UnixConn)
	fmt.Println("ok")
	for {
		line, err := lineOfStdin()
		if err != nil {
			return nil
		}
		if err := obey(conn, strings.Fields(line)); err != nil {
			return err
		}
		fmt.Println("ok")
	}
}

// lineOfStdin takes no byte more than the line, since children share stdin.
func lineOfStdin() (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

func obey(conn *net.UnixConn, words []string) error {
	socket, err := conn.File() // a duplicate for children
	if err != nil {
		return err
	}
	defer socket.Close()
	switch words[0] {
	case "write":
		_, err := conn.Write([]byte(words[1]))
		return err
	case "hide":
		return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	case "become": // another user
		uid, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return syscall.Setuid(uid)
	case "child": // a child writes on the inherited descriptor
		cmd := again("writer", words[1])
		cmd.ExtraFiles = []*os.File{socket}
		return cmd.Run()
	case "leave": // a child stays behind with the descriptor
		cmd := again("late", words[1])
		cmd.ExtraFiles = []*os.File{socket}
		if err := cmd.Start(); err != nil {
			return err
		}
		os.Exit(0)
	case "exec": // another program, which keeps the descriptor
		if _, err := unix.FcntlInt(socket.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
		unix.CloseOnExec(1) // its end tells the test that the exec is done
		return become("idle", words[1], words[1:])
	case "pass": // to the taker who listens at words[1]
		to, err := net.Dial("unix", words[1])
		if err != nil {
			return err
		}
		defer to.Close()
		_, _, err = to.(*net.UnixConn).WriteMsgUnix([]byte{0}, unix.UnixRights(int(socket.Fd())), nil)
		return err
	case "rights": // send a descriptor to the broker itself
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer null.Close()
		_, _, err = conn.WriteMsgUnix([]byte(words[1]), unix.UnixRights(int(null.Fd())), nil)
		return err
	case "close":
		return conn.Close()
	}
	return fmt.Errorf("unknown order %q", words)
}

// playWriter writes on descriptor 3.
func playWriter(args []string) error {
	_, err := os.NewFile(3, "inherited").Write([]byte(args[0]))
	return err
}

// playLate writes on descriptor 3 when it is told to.
func playLate(args []string) error {
	if _, err := lineOfStdin(); err != nil {
		return err
	}
	if err := playWriter(args); err != nil {
		return err
	}
	fmt.Println("ok")
	return playIdle(nil)
}

// playTaker listens at args[0], takes one descriptor and writes args[1] on it.
func playTaker(args []string) error {
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	fmt.Println("ok")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	oob := make([]byte, 64)
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	if _, err := unix.Write(fds[0], []byte(args[1])); err != nil {
		return err
	}
	fmt.Println("ok")
	return playIdle(nil)
}

// playOpener opens somebody's pipe through /proc and writes into it.
func playOpener(args []string) error {
	f, err := os.OpenFile(args[0], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(args[1]))
	return err
}

// playMemory becomes a client that runs from a memfd.
func playMemory(args []string) error {
	fd, err := unix.MemfdCreate("client", 0)
	if err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, self); err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	// A writable descriptor would keep the image from running.
	ro, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	unix.Close(fd)
	return become("client", fmt.Sprintf("/proc/self/fd/%d", ro), append([]string{"client"}, args...))
}

// become execs program in another role.
func become(role, program string, argv []string) error {
	if err := os.Setenv(roleVariable, role); err != nil {
		return err
	}
	return syscall.Exec(program, argv, os.Environ())
}

// playHost starts args as a role and waits for it.
func playHost(args []string) error { return again(args[0], args[1:]...).Run() }

// playLeave starts args as a role and dies first.
func playLeave(args []string) error { return again(args[0], args[1:]...).Start() }

// playSubreaper adopts what args leave behind.
func playSubreaper(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := again(args[0], args[1:]...).Run(); err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(-1, &status, 0, nil); err != nil && err != unix.EINTR {
			return nil // no children are left
		}
	}
}

// playShim says what Parent gives it, and when that process has died.
func playShim([]string) error {
	p, err := Parent()
	if err != nil {
		fmt.Println("refused", errors.Is(err, ErrNoAttribution), err)
		return nil
	}
	fmt.Println("parent", p.PID())
	<-p.Done()
	fmt.Println("died")
	return nil
}

// playStdio guards its standard input and says what it reads. args[0] is the
// parent that it believes in.
func playStdio(args []string) error {
	parent, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	s, err := GuardStdin(os.Stdin, os.Stdout, parent)
	if err != nil {
		return err
	}
	fmt.Println("guarded", s.Kind, s.Guarded)
	for {
		line, attributed, err := s.ReadLine(1 << 20)
		var sender *SenderError
		switch {
		case errors.As(err, &sender):
			fmt.Println("sender", sender.Want, sender.Got)
		case errors.Is(err, ErrIntruded):
			<-s.Intruded()
			fmt.Println("intruded")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		default:
			fmt.Printf("line %q %v\n", line, attributed)
			continue
		}
		return nil
	}
}

// helper is a process in a role.
type helper struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts program in a role and tears it down with the test.
func start(t *testing.T, program, role string, args ...string) *helper {
	t.Helper()
	return startCmd(t, exec.Command(program, args...), role)
}

func startCmd(t *testing.T, cmd *exec.Cmd, role string) *helper {
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
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// copyProgram makes another file with the same code, of the account that runs
// the test.
func copyProgram(t *testing.T, name string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), name)
	copyTo(t, to, 0o755)
	return to
}

func copyTo(t *testing.T, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	// Written under another name by another process's standards: a fork
	// between open and close would make the later exec fail with ETXTBSY.
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

// listen makes a socket as the broker does.
func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "peer") // short: socket paths are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
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

func accept(t *testing.T, l *net.UnixListener) *net.UnixConn {
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
func connect(t *testing.T, program string, args ...string) (*helper, *net.UnixConn) {
	t.Helper()
	l, path := listen(t)
	h := start(t, program, "client", slices.Insert(args, 0, path)...)
	c := accept(t, l)
	h.expect("ok")
	return h, c
}

func of(t *testing.T, c *net.UnixConn) *Process {
	t.Helper()
	p, err := Of(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// wait fails the test if the event does not come.
func wait(t *testing.T, event <-chan struct{}, what string) {
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
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own := filepath.Join(dir, "own")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(own, 0o755), os.Chown(own, ordinary, ordinary)); err != nil {
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
