package yetttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// insideVariable makes the test binary pid 1 of namespaces of its own, and then
// run one test there, with a root directory that belongs to its account.
const insideVariable = "YETTTEST_INSIDE"

func init() {
	if os.Getenv(insideVariable) != "make" {
		return
	}
	if err := makeInside(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "making a namespace:", err)
		os.Exit(1)
	}
}

func makeInside(root string) error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755")); err != nil {
		return err
	}
	for _, dir := range []string{"usr", "lib", "lib64", "bin", "dev"} {
		to := filepath.Join(root, dir)
		if _, err := os.Stat("/" + dir); err != nil {
			continue
		}
		if err := errors.Join(os.Mkdir(to, 0o755), unix.Mount("/"+dir, to, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	for _, dir := range []string{"tmp", "proc", "p"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for from, name := range map[string]string{Bin("yett"): "yett", Bin("yett-mcp"): "yett-mcp", "/proc/self/exe": "tests"} {
		if err := copyFile(from, filepath.Join(root, "p", name), 0o755); err != nil {
			return err
		}
	}
	if err := errors.Join(unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""), unix.Chroot(root), os.Chdir("/")); err != nil {
		return err
	}
	_ = os.WriteFile("/proc/sys/kernel/pid_max", []byte("400"), 0) // of this namespace, where the kernel has it
	return unix.Exec("/p/tests", []string{"/p/tests", os.Args[2], "-test.v", "-test.timeout=100s"},
		[]string{insideVariable + "=test", envBin + "=/p", "TMPDIR=/tmp", "PATH=/usr/bin:/bin", "GORACE=" + os.Getenv("GORACE")})
}

// inside runs the running test once more in namespaces of its own and wants it
// to pass there. beside runs meanwhile with the pid of the namespace's pid 1;
// it hears and answers the inner test on a pair of sockets, which is its file 3.
func inside(t *testing.T, beside func(pid int, c net.Conn)) {
	t.Helper()
	root, err := os.MkdirTemp("", "yn")
	must(t, err)
	defer os.RemoveAll(root)
	mine, its, err := link(true)
	must(t, err)
	c := exec.Command("/proc/self/exe", root, "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), insideVariable+"=make")
	c.ExtraFiles = []*os.File{its}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out := &buffer{}
	c.Stdout, c.Stderr = out, out
	must(t, c.Start())
	its.Close()
	conn, err := net.FileConn(mine)
	must(t, err)
	mine.Close()
	conn.SetDeadline(time.Now().Add(2 * Patience))
	if beside != nil {
		beside(c.Process.Pid, conn)
	}
	err = c.Wait()
	conn.Close()
	if err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()) {
		t.Fatalf("inside: %v\n%s", err, out)
	}
}

func isInside() bool { return os.Getenv(insideVariable) == "test" }

// TestAttackRecycledPID: the approved process dies while the broker does not
// look, another gets its number, holds its connection and writes on it.
func TestAttackRecycledPID(t *testing.T) {
	if !isInside() {
		inside(t, nil)
		return
	}
	b, up := demoBroker(t)
	p := newPuppet(t).greets(b)
	id, _ := p.granted(b, "http:demo.read")
	p.acts("/v1/own")
	conn := p.take()
	defer conn.Close()
	freeze(t, b.PID())
	p.order("exit")
	<-p.exited
	heir := heirOf(t, p.pid, conn)
	heir.do("send", actionLine(id, 3, "/v1/evil"))
	must(t, syscall.Kill(b.PID(), syscall.SIGCONT))
	for { // whatever is answered, it is no result
		line := heir.do("read")
		if line == "closed" {
			break
		}
		var r Reply
		if json.Unmarshal([]byte(line), &r) != nil || r.Error == nil {
			t.Errorf("the heir was answered: %s", line)
		}
	}
	b.ended(id, session.AgentExited)
	if why := b.endRow(id); why != session.AgentExited {
		t.Errorf("the ledger says %q", why)
	}
	up.only(t, "GET /v1/own")
}

// take gets a puppet's connection.
func (p *puppet) take() *os.File {
	p.t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(p.t.TempDir(), "s"), Net: "unix"})
	must(p.t, err)
	defer ln.Close()
	s := &puppetState{take: ln}
	done := make(chan error, 1)
	go func() { _, err := s.receive(nil); done <- err }()
	p.do("give", ln.Addr().String())
	must(p.t, <-done)
	f, err := s.conn.File()
	must(p.t, err)
	s.conn.Close()
	return f
}

// heirOf starts puppets with a connection until one has the number.
func heirOf(t *testing.T, pid int, conn *os.File) *puppet {
	t.Helper()
	for range 2000 {
		must(t, os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(fmt.Sprint(pid-1)), 0))
		c := exec.Command("/proc/self/exe")
		c.Env = []string{puppetVariable + `={"FD":3}`, "GORACE=" + os.Getenv("GORACE")}
		c.Stderr, c.ExtraFiles = os.Stderr, []*os.File{conn}
		inR, in, err := os.Pipe()
		must(t, err)
		out, outW, err := os.Pipe()
		must(t, err)
		c.Stdin, c.Stdout = inR, outW
		must(t, c.Start())
		inR.Close()
		outW.Close()
		if c.Process.Pid == pid {
			t.Cleanup(func() { in.Close(); c.Process.Kill(); c.Wait(); out.Close() })
			h := &puppet{t: t, pid: pid, in: in, out: newLines(out), from: out}
			h.hear()
			return h
		}
		in.Close()
		c.Process.Kill()
		c.Wait()
		out.Close()
	}
	t.Fatalf("nobody got the number %d", pid)
	return nil
}

// TestAttackPidZero: a process outside of the broker's pid namespace has no
// number there. It reaches the socket through /proc/PID/root, and is told that
// nobody can say who it is.
func TestAttackPidZero(t *testing.T) {
	if isInside() {
		b, up := demoBroker(t)
		before := len(b.Sessions())
		talk, err := net.FileConn(os.NewFile(3, "talk"))
		must(t, err)
		fmt.Fprintln(talk, b.Location().Socket)
		talk.SetDeadline(time.Now().Add(Patience))
		_, err = talk.Read(make([]byte, 1)) // until it has tried
		must(t, err)
		b.refusedRow(wire.CodeAttributionFailed, "cause")
		if n := len(b.Sessions()); n != before {
			t.Errorf("%d sessions more", n-before)
		}
		up.only(t)
		return
	}
	inside(t, func(pid int, talk net.Conn) {
		socket, err := newLines(talk).ReadString('\n')
		must(t, err)
		p := newPuppet(t)
		p.do("connect", fmt.Sprintf("/proc/%d/root%s", pid, strings.TrimSpace(socket)))
		p.refused(wire.CodeAttributionFailed, "hello", "native", "nobody")
		if line := p.do("read"); line != "closed" {
			t.Errorf("the channel is open: %s", line)
		}
		talk.Write([]byte("x"))
	})
}

// TestAttackUserNamespace: a process of the account connects from a user
// namespace of its own, where it may be whoever it likes; seen and hidden.
func TestAttackUserNamespace(t *testing.T) {
	b, up := demoBroker(t)
	for _, hidden := range []bool{false, true} {
		c := exec.Command("/proc/self/exe")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		p := startPuppet(t, c)
		if hidden {
			p.do("hide")
		}
		p.do("connect", b.Location().Socket)
		p.refused(wire.CodeAttributionFailed, "hello", "native", "root")
		if line := p.do("read"); line != "closed" {
			t.Errorf("the channel is open: %s", line)
		}
	}
	b.refusedRow(wire.CodeAttributionFailed, "user namespace")
	up.only(t)
}
