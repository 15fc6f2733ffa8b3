package endpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/peer"
)

// manager starts a service manager: a process that goes by the name systemd,
// makes the socket of the kind, and starts the broker on the word "start".
func (w *world) manager(kind string, options ...option) *child {
	w.t.Helper()
	if _, err := os.Lstat(w.path(managerName)); err != nil {
		w.install(managerName)
	}
	m := w.start(managerName, "as-manager", []string{w.path("home"), kind}, options...)
	m.expect("listening")
	return m
}

func (c *child) say(line string) {
	c.t.Helper()
	_, err := io.WriteString(c.stdin, line+"\n")
	must(c.t, err)
}

// childManager makes a socket and, for each line that it is told, a broker that
// gets it as descriptor 3.
func childManager(out *json.Encoder, home, kind string) int {
	l, err := InHome(home)
	var f *os.File
	if err == nil {
		f, err = makePassed(l, kind)
	}
	if err != nil {
		out.Encode(describe(said{Event: "failed"}, err))
		return 1
	}
	out.Encode(said{Event: "listening", PID: os.Getpid()})
	var broker *exec.Cmd
	var life io.WriteCloser
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "start":
			broker = exec.Command(filepath.Join(filepath.Dir(home), "bin/yett"), "as-serve-passed", home)
			broker.Env = []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=" + InheritedName}
			switch kind {
			case "two":
				broker.Env = []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=" + InheritedName + ":other"}
			case "misnamed":
				broker.Env = []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=other"}
			case "another account's":
				broker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
			case "another's":
				broker.Env = append(broker.Env, "LISTEN_PID=1")
			}
			broker.ExtraFiles = []*os.File{f}
			broker.Stdout, broker.Stderr = os.Stdout, os.Stderr
			life, err = broker.StdinPipe()
			if err == nil {
				err = broker.Start()
			}
			if err != nil {
				out.Encode(said{Event: "failed", Error: err.Error()})
				return 1
			}
		case "end":
			life.Close()
			broker.Wait()
			out.Encode(said{Event: "done"})
		case "kill":
			broker.Process.Kill()
			broker.Wait()
			out.Encode(said{Event: "done"})
		}
	}
	return 0
}

// makePassed makes what the manager passes.
func makePassed(l Location, kind string) (*os.File, error) {
	run := filepath.Dir(l.Socket)
	if err := os.MkdirAll(run, 0o700); err != nil {
		return nil, err
	}
	path, typ, listens := l.Socket, unix.SOCK_STREAM, true
	switch kind {
	case "a file":
		return os.Open("/dev/null")
	case "a network socket":
		n, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return n.(*net.TCPListener).File()
	case "a datagram socket":
		typ, listens = unix.SOCK_DGRAM, false
	case "not listening":
		listens = false
	case "elsewhere":
		path = filepath.Join(run, "other.sock")
	}
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		os.Remove(path) // as systemd does
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		mode := os.FileMode(0o600)
		if kind == "wide" {
			mode = 0o666
		}
		err = os.Chmod(path, mode)
	}
	if err == nil && kind == "another account's" {
		err = listenAs(fd, path, otherUID)
		listens = false
	}
	if err == nil && listens {
		err = unix.Listen(fd, 128)
	}
	switch {
	case err != nil:
	case kind == "gone":
		err = os.Remove(path)
	case kind == "wide directory":
		err = os.Chmod(run, 0o755)
	case kind == "replaced":
		err = os.Rename(path, path+".old")
		if err == nil {
			_, err = makePassed(l, "")
		}
	}
	return os.NewFile(uintptr(fd), "passed"), err
}

// listenAs listens with the rights of another account on a node that belongs to
// the account of the broker: listen is when the kernel notes who made it.
func listenAs(fd int, path string, uid int) error {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &st); err != nil {
		return err
	}
	if err := os.Chown(path, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	runtime.LockOSThread() // of this thread alone
	defer runtime.UnlockOSThread()
	set := func(uid int) error {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			return e
		}
		return nil
	}
	if err := set(uid); err != nil {
		return err
	}
	return errors.Join(unix.Listen(fd, 128), set(0))
}

// childServePassed is a broker that a manager starts. It reads as the real one
// does: what comes without a sender of its own is not read.
func childServePassed(out *json.Encoder, home string) int {
	if os.Getenv("LISTEN_PID") == "" {
		os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
	}
	l, err := InHome(home)
	var passed *os.File
	if err == nil {
		passed, err = Inherited()
	}
	if err == nil && passed == nil {
		out.Encode(said{Event: "failed", Kind: "none"})
		return 1
	}
	var ln *Listener
	if err == nil {
		ln, err = ListenOn(l, passed)
	}
	if err != nil {
		out.Encode(describe(said{Event: "failed"}, err))
		return 1
	}
	left := strings.Join(os.Environ(), " ")
	if inherited := notCloseOnExec(); inherited != "" {
		left += " descriptors " + inherited
	}
	out.Encode(said{Event: "listening", PID: os.Getpid(), Location: l, Bytes: left})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				pid, _ := peer.Number(c)
				for in := bufio.NewScanner(peer.NewReader(c, pid)); in.Scan(); {
					c.Write([]byte("hello\n"))
				}
			}()
		}
	}()
	io.Copy(io.Discard, os.Stdin)
	out.Encode(describe(said{Event: "closed"}, ln.Close()))
	return 0
}

// notCloseOnExec names sockets that a child would get.
func notCloseOnExec() string {
	var found []string
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range names {
		var fd int
		fmt.Sscan(filepath.Base(name), &fd)
		to, _ := os.Readlink(name)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fd > 2 && err == nil && strings.HasPrefix(to, "socket:") && flags&unix.FD_CLOEXEC == 0 {
			found = append(found, fmt.Sprint(fd))
		}
	}
	return strings.Join(found, " ")
}

// childEarly connects and writes at once, as any program could, and reads what
// comes back.
func childEarly(out *json.Encoder, path string) int {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.SetDeadline(time.Now().Add(lineWait))
		_, err = c.Write([]byte("hello\n"))
	}
	if err != nil {
		out.Encode(said{Event: "failed", Error: err.Error()})
		return 1
	}
	out.Encode(said{Event: "dialled"})
	line, err := bufio.NewReader(c).ReadString('\n')
	out.Encode(describe(said{Event: "read", Bytes: line}, err))
	return 0
}

func TestC10_ManagersSocketIsTakenOver(t *testing.T) {
	w := newWorld(t)
	m := w.manager("")
	check := w.untouched(w.path(sock))
	if s := w.dial("bin/yett-mcp").expect("dialled"); s.Cause != Starting {
		t.Errorf("before the broker a client says %+v", s)
	}
	early := w.start("bin/other", "as-early", []string{w.path(sock)})
	early.expect("dialled")
	waiting := w.dial("bin/yett-mcp") // begins before the broker does, most times
	m.say("start")
	s := m.expect("listening")
	if s.Bytes != "" {
		t.Errorf("of the start there is left: %s", s.Bytes)
	}
	if d := waiting.expect("dialled"); d.Error != "" || d.PID != s.PID {
		t.Errorf("a client that waited says %+v, want process %d", d, s.PID)
	}
	if r := early.expect("read"); r.Bytes != "hello\n" {
		t.Errorf("a client from before the broker read %+v", r)
	}
	d := w.dial("bin/yett-mcp")
	if s2 := d.expect("dialled"); s2.Error != "" || s2.PID != s.PID || s2.PID == m.cmd.Process.Pid {
		t.Errorf("a client says %+v, want process %d", s2, s.PID)
	}
	if r := d.expect("read"); r.Bytes != "hello\n" {
		t.Errorf("it read %+v", r)
	}
	if second := w.serve(w.path("home")).expect("failed"); second.Kind != "in-use" || second.Holder.PID != s.PID || !second.Answering {
		t.Errorf("a second broker said %+v, want in use by %d", second, s.PID)
	}
	m.say("end")
	if c := m.expect("closed"); c.Error != "" {
		t.Errorf("closing: %+v", c)
	}
	m.expect("done")
	check()
	if _, err := os.Lstat(w.path(runDir + "/broker.state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of the broker is still there: %v", err)
	}
	// The kernel goes on naming the broker that was.
	if s := w.dial("bin/yett-mcp").expect("dialled"); s.Cause != Stale {
		t.Errorf("after the broker a client says %+v", s)
	}
	for _, how := range []string{"kill", "end"} { // again, also after a crash
		m.say("start")
		m.expect("listening")
		w.dial("bin/yett-mcp").expect("dialled")
		m.say(how)
		if how == "end" {
			m.expect("closed")
		}
		m.expect("done")
		check()
	}
}

// Whoever starts the service owns its path: the other one is refused, and the
// path stays as it is.
func TestC10_NeverBoth(t *testing.T) {
	w := newWorld(t)
	m := w.manager("")
	check := w.untouched(w.path(sock))
	if s := w.serve(w.path("home")).expect("failed"); s.Kind != "unsafe" || !strings.Contains(s.Error, managerName) {
		t.Errorf("a broker beside the manager's socket said %+v", s)
	}
	check()
	m.kill()

	// systemd takes the path from whoever has it. The broker that had it goes on
	// holding the locks, and sees that nobody can reach it.
	first := w.serve(w.path("home"))
	pid := first.expect("listening").PID
	first.say("?")
	if s := first.expect("holds"); s.Error != "" {
		t.Errorf("the broker said of its path %+v", s)
	}
	m = w.manager("")
	check = w.untouched(w.path(sock))
	m.say("start")
	if s := m.expect("failed"); s.Kind != "in-use" || s.Holder.PID != pid && s.Holder.PID != m.cmd.Process.Pid {
		t.Errorf("the manager's broker said %+v, want in use", s)
	}
	first.say("?")
	if s := first.expect("holds"); s.Kind != "lost" || !strings.Contains(s.Error, "another object") {
		t.Errorf("the first broker said of its path %+v", s)
	}
	if s := first.end(); s.Kind != "unsafe" {
		t.Errorf("closing said %+v", s)
	}
	check()
	m.say("start")
	m.expect("listening")
}

// A descriptor that is not the contract's socket is refused by its reason.
func TestC10_WrongDescriptorsAreRefused(t *testing.T) {
	for kind, why := range map[string]string{
		"a file":            "no socket",
		"a network socket":  "no unix socket",
		"a datagram socket": "no stream socket",
		"not listening":     "does not listen",
		"elsewhere":         "other.sock",
		"gone":              "any more",
		"replaced":          "instead",
		"wide":              "0666",
		"wide directory":    "0755",
		"two":               "must be one",
		"misnamed":          `names "other"`,
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			m := w.manager(kind)
			check := w.untouched(w.path(sock))
			m.say("start")
			s := m.expect("failed")
			if !strings.Contains(s.Error, why) || s.Kind != "inherited" && s.Kind != "unsafe" {
				t.Errorf("the broker said %+v, want …%s…", s, why)
			}
			check()
		})
	}
	t.Run("another's", func(t *testing.T) {
		w := newWorld(t)
		m := w.manager("another's")
		m.say("start")
		if s := m.expect("failed"); s.Kind != "none" {
			t.Errorf("a descriptor that was meant for another process: %+v", s)
		}
	})
	t.Run("another account's", func(t *testing.T) {
		needsRoot(t)
		w := newWorld(t)
		w.own(runDir)
		m := w.manager("another account's", asUID(0))
		check := w.untouched(w.path(sock))
		m.say("start")
		if s := m.expect("failed"); s.Kind != "inherited" || !strings.Contains(s.Error, "uid 61002") {
			t.Errorf("the broker said %+v", s)
		}
		check()
	})
}

func TestC10_InheritedNeedsAProcess(t *testing.T) {
	for _, pid := range []string{"", "1", "x", fmt.Sprint(os.Getpid()) + "0"} {
		t.Setenv("LISTEN_PID", pid)
		t.Setenv("LISTEN_FDS", "1")
		t.Setenv("LISTEN_FDNAMES", InheritedName)
		if f, err := Inherited(); f != nil || err != nil {
			t.Errorf("LISTEN_PID=%s: %v %v", pid, f, err)
		}
		for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
			if v, set := os.LookupEnv(name); set {
				t.Errorf("%s is still %q", name, v)
			}
		}
	}
}
