//go:build linux

package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests run real processes: copies of this test binary under the names of
// programs, as an ordinary account that root makes up (accounts need no entry
// anywhere but in Default, which gets one in a mount namespace of its own).

const (
	ordinaryUID = 61001
	otherUID    = 61002
)

// lineWait is how long a child may take to say something; it only passes when
// a test fails.
const lineWait = 20 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "as-") {
		os.Exit(runChild(os.Args[1], os.Args[2:]))
	}
	os.Exit(m.Run())
}

// world is a directory of one test: programs to run and homes to run them in.
type world struct {
	t    *testing.T
	root string
	uid  int // who the programs run as
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "yett-endpoint-")
	if err != nil {
		t.Fatal(err)
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	must(t, os.Chmod(root, 0o755))
	w := &world{t: t, root: root, uid: os.Getuid()}
	if w.uid == 0 {
		w.uid = ordinaryUID
	}
	must(t, os.Mkdir(w.path("bin"), 0o755))
	for _, name := range []string{"yett", "yett-mcp", "other"} {
		w.install("bin/" + name)
	}
	w.own("home")
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

// install puts a copy of this binary at name: each is a program of its own.
func (w *world) install(name string) {
	w.t.Helper()
	self, err := os.Executable()
	must(w.t, err)
	in, err := os.Open(self)
	must(w.t, err)
	defer in.Close()
	out, err := os.OpenFile(w.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	must(w.t, err)
	_, err = io.Copy(out, in)
	must(w.t, err)
	must(w.t, out.Close())
	must(w.t, os.Chmod(w.path(name), 0o755))
}

// own makes a directory 0700 of the ordinary account.
func (w *world) own(name string) string {
	w.t.Helper()
	must(w.t, os.Mkdir(w.path(name), 0o700))
	must(w.t, os.Chmod(w.path(name), 0o700))
	w.give(name, w.uid)
	return w.path(name)
}

func (w *world) give(name string, uid int) {
	w.t.Helper()
	if os.Getuid() == 0 {
		must(w.t, os.Lchown(w.path(name), uid, uid))
	}
}

// needsRoot ends a test that is about two accounts.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can act as two accounts")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// said is one line of a child.
type said struct {
	Event string // listening, failed, dialled, read, got, holds, closed, location, done

	PID       int
	Dev, Ino  uint64
	Location  Location
	Error     string
	Kind      string // in-use, unsafe, too-long, lost, inherited, unavailable or empty
	Path      string
	Cause     Cause
	Holder    Holder
	Answering bool
	Hidden    bool
	Replaced  bool
	Bytes     string
	TookMS    int64
}

// child is a running program.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan said
	errs  bytes.Buffer
}

type option func(*exec.Cmd)

func asUID(uid int) option {
	return func(c *exec.Cmd) {
		if os.Getuid() == 0 {
			c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
		}
	}
}

func withEnv(env ...string) option { return func(c *exec.Cmd) { c.Env = append(c.Env, env...) } }

// start runs a program of this world with an environment that is empty but for
// what the race detector is told, which else sleeps a second at each exit.
func (w *world) start(program, mode string, args []string, options ...option) *child {
	w.t.Helper()
	cmd := exec.Command(w.path(program), append([]string{mode}, args...)...)
	cmd.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	asUID(w.uid)(cmd)
	for _, o := range options {
		o(cmd)
	}
	c := &child{t: w.t, cmd: cmd, lines: make(chan said, 100)}
	var err error
	c.stdin, err = cmd.StdinPipe()
	must(w.t, err)
	stdout, err := cmd.StdoutPipe()
	must(w.t, err)
	cmd.Stderr = &c.errs
	must(w.t, cmd.Start())
	go func() {
		defer close(c.lines)
		in := bufio.NewScanner(stdout)
		for in.Scan() {
			var s said
			if json.Unmarshal(in.Bytes(), &s) == nil {
				c.lines <- s
			}
		}
	}()
	w.t.Cleanup(func() {
		c.cmd.Process.Signal(syscall.SIGCONT)
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
}

func (w *world) serve(home string, options ...option) *child {
	w.t.Helper()
	return w.start("bin/yett", "as-serve", []string{home}, options...)
}

// next is the next line that the child says.
func (c *child) next() said {
	c.t.Helper()
	select {
	case s, ok := <-c.lines:
		if !ok {
			c.cmd.Wait()
			c.t.Fatalf("%v ended without a word: %v\n%s", c.cmd.Args, c.cmd.ProcessState, c.errs.String())
		}
		return s
	case <-time.After(lineWait):
		c.t.Fatalf("%v said nothing", c.cmd.Args)
	}
	return said{}
}

func (c *child) expect(event string) said {
	c.t.Helper()
	s := c.next()
	if s.Event != event {
		c.t.Fatalf("%v said %+v, want %s", c.cmd.Args[1:], s, event)
	}
	return s
}

// end closes the child's stdin and waits for its last word.
func (c *child) end() said {
	c.t.Helper()
	c.stdin.Close()
	for {
		if s := c.next(); s.Event == "closed" || s.Event == "failed" {
			c.cmd.Wait()
			return s
		}
	}
}

func (c *child) kill() {
	c.t.Helper()
	must(c.t, c.cmd.Process.Kill())
	c.cmd.Wait()
}

// stop suspends the child and waits until the kernel shows it stopped.
func (c *child) stop() {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(syscall.SIGSTOP))
	for end := time.Now().Add(lineWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		must(c.t, err)
		if strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " T") {
			return
		}
	}
	c.t.Fatal("child did not stop")
}

// untouched returns a check that name is still the very same object.
func (w *world) untouched(path string) func() {
	w.t.Helper()
	look := func() string {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err.Error()
		}
		content := []byte(nil)
		if isKind(&st, unix.S_IFREG) {
			content, _ = os.ReadFile(path)
		}
		return fmt.Sprintf("%d:%d mode %o owner %d links %d mtime %d ctime %d %q",
			st.Dev, st.Ino, st.Mode, st.Uid, st.Nlink, st.Mtim.Nano(), st.Ctim.Nano(), content)
	}
	before := look()
	return func() {
		w.t.Helper()
		if after := look(); after != before {
			w.t.Errorf("%s was touched:\nbefore %s\nafter  %s", path, before, after)
		}
	}
}

// deadSocket leaves a socket that nobody listens on.
func (w *world) deadSocket(name string) {
	w.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: w.path(name)})
	must(w.t, err)
	l.SetUnlinkOnClose(false)
	must(w.t, l.Close())
	must(w.t, os.Chmod(w.path(name), 0o600))
	w.give(name, w.uid)
}

func (w *world) inode(path string) (dev, ino uint64) {
	w.t.Helper()
	var st unix.Stat_t
	must(w.t, unix.Lstat(path, &st))
	return uint64(st.Dev), st.Ino
}

// runChild is what the programs do.
func runChild(mode string, args []string) int {
	out := json.NewEncoder(os.Stdout)
	switch mode {
	case "as-serve": // HOME [UMASK [SOCKET]]
		if len(args) > 1 {
			umask, _ := strconv.ParseInt(args[1], 8, 32)
			syscall.Umask(int(umask))
		}
		l, err := InHome(args[0])
		if len(args) > 2 {
			l.Socket = args[2]
		}
		return childServe(out, l, err)
	case "as-serve-hidden":
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		l, err := InHome(args[0])
		return childServe(out, l, err)
	case "as-serve-default":
		l, err := Default()
		return childServe(out, l, err)
	case "as-dial":
		l, err := InHome(args[0])
		return childDial(out, l, err)
	case "as-dial-default":
		l, err := Default()
		return childDial(out, l, err)
	case "as-default":
		l, err := Default()
		out.Encode(describe(said{Event: "location", Location: l}, err))
		return 0
	case "as-fake", "as-fake-full", "as-fake-shared":
		return childFake(out, args[0], mode)
	case "as-heir": // holds what it inherited until stdin ends
		io.Copy(io.Discard, os.Stdin)
		return 0
	case "as-serve-handing-off":
		return childHandOff(out, args[0])
	case "as-writer":
		os.Stdin.Write([]byte("hello from another\n"))
		return 0
	case "as-churn":
		return childChurn(out, args[0], args[1])
	case "as-manager":
		return childManager(out, args[0], args[1])
	case "as-serve-passed":
		return childServePassed(out, args[0])
	case "as-early":
		return childEarly(out, args[0])
	case "as-in-namespace":
		return childNamespace(out, args)
	}
	return 2
}

func describe(s said, err error) said {
	if err == nil {
		return s
	}
	s.Error = err.Error()
	var (
		inUse *InUseError
		bad   *UnsafeError
		long  *PathTooLongError
		gone  *UnavailableError
		lost  *LostError
		given *InheritedError
	)
	if errors.As(err, &gone) {
		s.Kind, s.Cause = "unavailable", gone.Cause
		return s
	}
	switch {
	case errors.As(err, &inUse):
		s.Kind, s.Path, s.Holder, s.Answering = "in-use", inUse.Path, inUse.Holder, inUse.Answering
	case errors.As(err, &bad):
		s.Kind, s.Path = "unsafe", bad.Path
	case errors.As(err, &long):
		s.Kind, s.Path = "too-long", long.Path
	case errors.As(err, &lost):
		s.Kind, s.Path = "lost", lost.Path
	case errors.As(err, &given):
		s.Kind = "inherited"
	}
	return s
}

// childServe answers each line with "hello" until stdin ends.
func childServe(out *json.Encoder, l Location, err error) int {
	began := time.Now()
	var ln *Listener
	if err == nil {
		ln, err = Listen(l)
	}
	if err != nil {
		out.Encode(describe(said{Event: "failed", TookMS: time.Since(began).Milliseconds()}, err))
		return 1
	}
	dev, ino := ln.Node()
	out.Encode(said{Event: "listening", PID: os.Getpid(), Dev: dev, Ino: ino, Location: l})
	go serveHello(ln)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // any line asks whether the path still leads here
		out.Encode(describe(said{Event: "holds"}, ln.Holds()))
	}
	out.Encode(describe(said{Event: "closed"}, ln.Close()))
	return 0
}

func serveHello(ln *Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for in := bufio.NewScanner(c); in.Scan(); {
				c.Write([]byte("hello\n"))
			}
		}()
	}
}

// childDial sends a line and reads the answer.
func childDial(out *json.Encoder, l Location, err error) int {
	began := time.Now()
	s := said{Event: "dialled"}
	var c *Conn
	if err == nil {
		c, err = Dial(context.Background(), l)
	}
	s.TookMS = time.Since(began).Milliseconds()
	if err != nil {
		out.Encode(describe(s, err))
		return 1
	}
	s.PID, s.Hidden, s.Replaced = c.Broker.PID(), c.Hidden, c.Replaced
	out.Encode(s)
	c.SetDeadline(time.Now().Add(lineWait))
	c.Write([]byte("hello\n"))
	line, err := bufio.NewReader(c).ReadString('\n')
	out.Encode(describe(said{Event: "read", Bytes: line}, err))
	out.Encode(describe(said{Event: "closed"}, c.Close()))
	return 0
}

// childFake listens without asking anyone and says what it was sent.
func childFake(out *json.Encoder, path, mode string) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	backlog, full := 16, mode == "as-fake-full"
	if full {
		backlog = 0
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		out.Encode(said{Event: "failed", Error: err.Error()})
		return 1
	}
	if full { // one connection fills a queue of zero
		if c, err := net.Dial("unix", path); err == nil {
			defer c.Close()
		}
	}
	if mode == "as-fake-shared" {
		self, _ := os.Executable()
		heir := exec.Command(self, "as-heir")
		heir.Stdin = os.Stdin
		heir.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "listener")}
		if err := heir.Start(); err != nil {
			out.Encode(said{Event: "failed", Error: err.Error()})
			return 1
		}
	}
	out.Encode(said{Event: "listening", PID: os.Getpid()})
	if mode == "as-fake" {
		go func() {
			for {
				c, _, err := unix.Accept(fd)
				if err != nil {
					return
				}
				b := make([]byte, 100)
				n, _ := unix.Read(c, b)
				out.Encode(said{Event: "got", Bytes: string(b[:max(n, 0)])})
				unix.Close(c)
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	out.Encode(said{Event: "closed"})
	return 0
}

// childHandOff is a real broker whose connections are answered by another
// process, to which it passes them.
func childHandOff(out *json.Encoder, home string) int {
	l, err := InHome(home)
	var ln *Listener
	if err == nil {
		ln, err = Listen(l)
	}
	if err != nil {
		out.Encode(describe(said{Event: "failed"}, err))
		return 1
	}
	out.Encode(said{Event: "listening", PID: os.Getpid()})
	for {
		c, err := ln.Accept()
		if err != nil {
			return 1
		}
		f, err := c.File()
		if err != nil {
			return 1
		}
		self, _ := os.Executable()
		cmd := exec.Command(self, "as-writer")
		cmd.Stdin = f
		cmd.Run()
		f.Close()
		c.Close()
	}
}

// childNamespace runs the rest of its arguments as an account, in a mount
// namespace with an account database and a /run/user of the test's own. Root
// is needed for the mounts and given up after them.
func childNamespace(out *json.Encoder, args []string) int { // UID PASSWD RUNUSER MODE...
	uid, err := strconv.Atoi(args[0])
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		// Not over the file alone: such a mount is gone once anybody replaces the
		// file by a rename, as every change of the account database does.
		err = unix.Mount(filepath.Dir(args[1]), "/etc", "", unix.MS_BIND, "")
	}
	if err == nil {
		err = unix.Mount(args[2], "/run/user", "", unix.MS_BIND, "")
	}
	if err == nil {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(uid), syscall.Setuid(uid))
	}
	var self string
	if err == nil {
		self, err = os.Executable()
	}
	if err == nil {
		err = syscall.Exec(self, append([]string{self}, args[3:]...), os.Environ())
	}
	out.Encode(said{Event: "failed", Error: err.Error()})
	return 1
}

// childChurn makes and removes the endpoint again and again, and files of its
// own meanwhile: these must have the mode that the umask gives them.
func childChurn(out *json.Encoder, home, mask string) int {
	umask, _ := strconv.ParseInt(mask, 8, 32)
	syscall.Umask(int(umask))
	stop, done := make(chan bool), make(chan string)
	go func() {
		bad := ""
		for {
			select {
			case <-stop:
				done <- bad
				return
			default:
			}
			name := filepath.Join(home, "bystander")
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
			if err != nil {
				bad = err.Error()
				continue
			}
			if st, err := f.Stat(); err == nil && st.Mode().Perm() != 0o666&^os.FileMode(umask) {
				bad = fmt.Sprintf("a file of another goroutine has mode %04o", st.Mode().Perm())
			}
			f.Close()
			os.Remove(name)
		}
	}()
	for range 60 {
		l, err := InHome(home)
		var ln *Listener
		if err == nil {
			ln, err = Listen(l)
		}
		if err == nil {
			err = errors.Join(ln.Close(), os.RemoveAll(filepath.Join(home, "run")))
		}
		if err != nil {
			out.Encode(describe(said{Event: "failed"}, err))
			return 1
		}
	}
	close(stop)
	out.Encode(said{Event: "closed", Error: <-done})
	return 0
}
