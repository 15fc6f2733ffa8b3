package yetttest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// activatorVariable makes the test binary a service manager: it binds the
// socket of a home and starts the broker when somebody connects.
const activatorVariable = "YETTTEST_ACTIVATOR"

func init() {
	if os.Getenv(activatorVariable) == "" {
		return
	}
	os.Unsetenv(activatorVariable)
	if err := activate(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "activating:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// activate binds path, and for each broker that it is told to wait for starts
// command once there is a connection.
func activate(path string, command []string) error {
	if err := os.WriteFile("/proc/self/comm", []byte("systemd"), 0); err != nil { // as systemd is called
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = errors.Join(os.Chmod(path, 0o600), unix.Listen(fd, 64))
	}
	if err != nil {
		return err
	}
	listener := os.NewFile(uintptr(fd), "listener")
	fmt.Println("listening")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(Patience.Milliseconds())); err != nil {
			return err
		}
		c := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$@"`, "sh"}, command...)...)
		c.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=yett-broker", "WATCHDOG_USEC=200000")
		c.ExtraFiles = []*os.File{listener}
		c.Stderr = os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the test's end is the broker's
		if err := c.Start(); err != nil {
			return err
		}
		fmt.Println("started", c.Process.Pid)
		c.Wait()
		fmt.Println("exited", c.ProcessState.ExitCode())
	}
	return nil
}

// manager hears how the broker is. It reads all the time, as a service manager
// does: the socket holds ten messages only, and the broker soon gives up on one
// that it cannot send.
type manager struct {
	t     testing.TB
	heard chan string
}

func listenAsManager(t testing.TB) (*manager, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	m := &manager{t, make(chan string, 10_000)}
	go func() {
		defer close(m.heard)
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			m.heard <- string(b[:n])
		}
	}()
	return m, path
}

// until waits for a message with a part in it.
func (m *manager) until(part string) string {
	m.t.Helper()
	late := time.After(Patience)
	for {
		select {
		case said, open := <-m.heard:
			if !open {
				m.t.Fatalf("the manager no longer listens for %q", part)
			}
			if strings.Contains(said, part) {
				return said
			}
		case <-late:
			m.t.Fatalf("the manager was not told %q", part)
		}
	}
}

// TestC10_StartedByTheManager: a connection starts the broker, the client that
// made it is served, the manager hears how the broker is, and owns the path.
func TestC10_StartedByTheManager(t *testing.T) {
	b := New(t)
	socket := b.Location().Socket
	must(t, os.Mkdir(filepath.Dir(socket), 0o700))
	hears, notify := listenAsManager(t)
	c := exec.Command("/proc/self/exe", socket, Bin("yett"), "serve", "--home", b.Home)
	c.Env = []string{activatorVariable + "=1", "NOTIFY_SOCKET=" + notify, "GORACE=" + os.Getenv("GORACE")}
	c.Stderr = b.log
	c.WaitDelay = time.Second
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	lines := bufio.NewScanner(out)
	word := func(want string) string {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Fatalf("the manager said %q, not %s", lines.Text(), want)
		}
		return strings.TrimSpace(strings.TrimPrefix(lines.Text(), want))
	}
	word("listening")
	before := lstat(t, socket)
	for round := range 2 {
		fmt.Fprintln(in, "next")
		h := b.startShim().ready()
		h.call("list_access", "{}").refused(t, "locked", "yett unlock") // this call started it
		word("started")
		if said := hears.until("READY=1"); !strings.Contains(said, "STATUS=locked, 0 sessions") {
			t.Errorf("the manager was told %q", said)
		}
		hears.until("WATCHDOG=1")
		b.Unlock()
		hears.until("STATUS=ready")
		h.call("list_access", "{}").wants(t, "There are no capabilities")
		if r := b.RunPlain("serve"); r.Code != 1 || !strings.Contains(r.Stderr, "is running already") {
			t.Errorf("a second broker: exit %d %s", r.Code, r.Stderr)
		}
		if round == 0 {
			b.RunPlain("stop")
			hears.until("STOPPING=1")
			if code := word("exited"); code != "0" {
				t.Errorf("the broker exited with %s", code)
			}
		}
		if now := lstat(t, socket); now != before {
			t.Errorf("the path was touched: %+v, was %+v", now, before)
		}
	}
}

type nodeState struct {
	dev, ino uint64
	mode     uint32
}

func lstat(t testing.TB, path string) nodeState {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return nodeState{uint64(st.Dev), st.Ino, st.Mode}
}

// TestC10_SystemdSocketActivate: the same by systemd's own tool, where it is
// installed; what it passes is made here as well, so nothing is left out.
func TestC10_SystemdSocketActivate(t *testing.T) {
	tool, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Log("systemd-socket-activate is not installed; TestC10_StartedByTheManager passes the same")
		return
	}
	b := New(t)
	socket := b.Location().Socket
	must(t, os.Mkdir(filepath.Dir(socket), 0o700))
	c := exec.Command(tool, "--listen="+socket, "--fdname=yett-broker", Bin("yett"), "serve", "--home", b.Home)
	c.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	c.Stderr = b.log
	must(t, c.Start())
	b.cmd = c
	// The tool becomes the broker: a client from before is told that another
	// program listens, so the first connection is one that only starts it.
	deadline := time.Now().Add(Patience)
	for {
		os.Chmod(socket, 0o600) // SocketMode= of a unit
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("systemd-socket-activate does not listen")
		}
		time.Sleep(2 * time.Millisecond)
	}
	before := lstat(t, socket)
	for !strings.Contains(string(b.log.Bytes()), "serving, locked") {
		if time.Now().After(deadline) {
			t.Fatalf("the broker did not start:\n%s", b.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.Unlock()
	if st := b.status(); st.State != "ready" {
		t.Errorf("%+v", st)
	}
	b.RunPlain("stop")
	if code := b.exited(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if now := lstat(t, socket); now != before {
		t.Errorf("the path was touched: %+v, was %+v", now, before)
	}
}

// TestC10_WrongSocketIsRefusedInWords, by the program as the person sees it.
func TestC10_WrongSocketIsRefusedInWords(t *testing.T) {
	b := New(t)
	elsewhere := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: elsewhere})
	must(t, err)
	defer l.Close()
	f, err := l.File()
	must(t, err)
	defer f.Close()
	c := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", Bin("yett"), "serve", "--home", b.Home)
	c.Env = []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=yett-broker", "GORACE=" + os.Getenv("GORACE")}
	c.ExtraFiles = []*os.File{f}
	said, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "it is bound at") || !strings.Contains(string(said), "socket unit") {
		t.Errorf("%v\n%s", err, said)
	}
	if _, err := os.Lstat(b.Location().Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it listens all the same: %v", err)
	}
}

// TestM12_NothingInheritedIsHeld: whoever reads the other end of a descriptor
// that came along sees its end while the broker runs.
func TestM12_NothingInheritedIsHeld(t *testing.T) {
	b := New(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	read, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer read.Close()
	b.Under = []string{"/bin/sh", "-c", `exec 7>"` + pipe + `"; exec "$@"`, "sh"}
	b.Serve()
	read.SetReadDeadline(time.Now().Add(Patience))
	if rest, err := io.ReadAll(read); err != nil || len(rest) > 0 {
		t.Errorf("the broker holds what it inherited: %q, %v", rest, err)
	}
	if st := b.status(); st.State != "locked" {
		t.Errorf("%+v", st)
	}
}

// TestNothingListensButTheSocket: of all sockets in this network namespace that
// wait for a connection, one lies in the broker's home, and it is the endpoint.
// TestNoNetworkListener holds the same of the network.
func TestNothingListensButTheSocket(t *testing.T) {
	b, _ := demoBroker(t)
	c := b.Granted("http:demo.read")
	c.MustAct("http:demo.read", readX)
	table, err := os.ReadFile("/proc/net/unix")
	must(t, err)
	var found []string
	for _, line := range strings.Split(string(table), "\n") {
		// Num RefCount Protocol Flags Type St Inode Path; the flag is __SO_ACCEPTCON
		fields := strings.Fields(line)
		if len(fields) == 8 && fields[3] == "00010000" && (strings.Contains(fields[7], b.Home) || strings.Contains(strings.ToLower(fields[7]), "yett.")) {
			found = append(found, fields[7])
		}
	}
	// The kernel knows the name under which it was bound.
	if len(found) != 1 || filepath.Dir(found[0]) != filepath.Dir(b.Location().Socket) {
		t.Errorf("listening: %v, want the socket in %s alone", found, filepath.Dir(b.Location().Socket))
	}
}
