package yetttest

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

	"github.com/yett-broker/yett/internal/wire"
)

// A puppet is a process that does one order after the other, so that an attack
// has an order of its own: orders are JSON arrays of strings, one a line, on its
// standard input, answers are "ok " or "no " and a JSON string on its standard
// output. It does nothing that any program of the account could not do, and
// none of what the real clients do to protect themselves.

// puppetState is what a puppet holds. It survives an exec.
type puppetState struct {
	FD       int    // of the connection, for the next program
	Listener int    // of a socket that listens
	Auxv     []byte // of the program before the exec
	Nonce    string
	Session  string
	Seq      int64

	conn *net.UnixConn
	in   *bufio.Reader
	file *os.File // opened or stolen
	take *net.UnixListener
}

func init() {
	text := os.Getenv(puppetVariable)
	if text == "" {
		return
	}
	os.Unsetenv(puppetVariable)
	runtime.LockOSThread() // ptrace belongs to a thread
	s := &puppetState{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		fmt.Fprintln(os.Stderr, "puppet:", err)
		os.Exit(1)
	}
	if s.FD > 0 {
		if err := s.adopt(os.NewFile(uintptr(s.FD), "connection")); err != nil {
			fmt.Fprintln(os.Stderr, "puppet:", err)
			os.Exit(1)
		}
	}
	if s.Listener > 0 {
		ln, err := net.FileListener(os.NewFile(uintptr(s.Listener), "listener"))
		if err != nil {
			fmt.Fprintln(os.Stderr, "puppet:", err)
			os.Exit(1)
		}
		s.take = ln.(*net.UnixListener)
	}
	puppetAnswer("up", nil)
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		var order []string
		if err := json.Unmarshal([]byte(line), &order); err != nil {
			puppetAnswer("", err)
			continue
		}
		do, ok := puppetOrders[order[0]]
		if !ok {
			do, ok = boundaryOrders[order[0]]
		}
		if !ok {
			puppetAnswer("", fmt.Errorf("unknown order %s", order[0]))
			continue
		}
		puppetAnswer(do(s, order[1:]))
	}
}

func puppetAnswer(said string, err error) {
	word := "ok "
	if err != nil {
		word, said = "no ", err.Error()
	}
	raw, _ := json.Marshal(said)
	os.Stdout.WriteString(word + string(raw) + "\n")
}

type puppetOrder func(s *puppetState, args []string) (string, error)

// puppetOrders are variables and not filled by an init: they are whole before any init runs.
var puppetOrders = map[string]puppetOrder{
	"connect": (*puppetState).connect, "hello": (*puppetState).hello, "open": (*puppetState).open,
	"wait": (*puppetState).wait, "act": (*puppetState).act, "send": (*puppetState).send, "read": (*puppetState).read,
	"exec": (*puppetState).exec, "leave": (*puppetState).leave, "give": (*puppetState).give,
	"listen": (*puppetState).listen, "receive": (*puppetState).receive, "steal": (*puppetState).steal,
	"shim": (*puppetState).shim, "keep": (*puppetState).keep, "disguise": (*puppetState).disguise, "rename": (*puppetState).rename,
	"openfile": (*puppetState).openFile, "write": (*puppetState).write, "hide": (*puppetState).hide,
	"memfd": (*puppetState).memfd, "exit": func(*puppetState, []string) (string, error) { os.Exit(0); return "", nil },
}

// adopt takes a connected socket for the connection to the broker.
func (s *puppetState) adopt(f *os.File) error {
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	f.Close()
	s.conn = c.(*net.UnixConn)
	s.in = bufio.NewReaderSize(s.conn, 64<<10)
	return nil
}

// connect goes to a socket by its path and proves nothing.
func (s *puppetState) connect(args []string) (string, error) {
	c, err := net.DialTimeout("unix", args[0], Patience)
	if err != nil {
		return "", err
	}
	s.conn, s.in = c.(*net.UnixConn), bufio.NewReaderSize(c, 64<<10)
	return "", nil
}

func (s *puppetState) ask(method string, params map[string]any) (string, error) {
	frame, err := wire.EncodeRequest(1, method, params)
	if err != nil {
		return "", err
	}
	s.conn.SetDeadline(time.Now().Add(Patience + 5*time.Second))
	if _, err := s.conn.Write(frame); err != nil {
		return "closed", nil
	}
	return s.read(nil)
}

func (s *puppetState) read([]string) (string, error) {
	s.conn.SetReadDeadline(time.Now().Add(Patience + 5*time.Second))
	line, err := s.in.ReadString('\n')
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return "", err
	case err != nil:
		return "closed", nil
	}
	return line, nil
}

func (s *puppetState) hello(args []string) (string, error) {
	line, err := s.ask(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": args[1], "version": "0", "role": args[0]})
	var r struct{ Result wire.HelloResult }
	json.Unmarshal([]byte(line), &r)
	s.Nonce = r.Result.Nonce
	return line, err
}

func (s *puppetState) open(args []string) (string, error) {
	line, err := s.ask(wire.MethodSessionOpen, map[string]any{"nonce": s.Nonce, "capabilities": append([]string{}, args...)})
	var r struct{ Result wire.SessionResult }
	json.Unmarshal([]byte(line), &r)
	s.Session = r.Result.SessionID
	return line, err
}

func (s *puppetState) next(more map[string]any) map[string]any {
	s.Seq++
	more["session_id"], more["sequence"] = s.Session, s.Seq
	return more
}

func (s *puppetState) wait([]string) (string, error) {
	return s.ask(wire.MethodSessionWait, s.next(map[string]any{"wait_ms": 30_000}))
}

// act asks for a GET of a path and waits for its end.
func (s *puppetState) act(args []string) (string, error) {
	return s.ask(wire.MethodActionRequest, s.next(map[string]any{"capability": "http:demo.read", "wait_ms": 30_000,
		"action": map[string]any{"method": "GET", "path": args[0]}}))
}

func (s *puppetState) send(args []string) (string, error) {
	_, err := s.conn.Write([]byte(args[0] + "\n"))
	return "", err
}

// environment carries the state to the next program, with the connection on fd.
func (s *puppetState) environment(fd int) []string {
	after := *s
	after.FD = fd
	raw, _ := json.Marshal(after)
	return []string{puppetVariable + "=" + string(raw), "GORACE=" + os.Getenv("GORACE"),
		"GODEBUG=asyncpreemptoff=1"} // a signal of its own runtime would stop a traced one
}

// inheritable returns a duplicate of the connection that an exec keeps.
func (s *puppetState) inheritable() (int, error) {
	if s.conn == nil {
		return 0, nil
	}
	f, err := s.conn.File()
	if err != nil {
		return 0, err
	}
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD, 20)
}

// exec becomes another program (or the same once more) and goes on.
func (s *puppetState) exec(args []string) (string, error) {
	fd, err := s.inheritable()
	if err != nil {
		return "", err
	}
	return "", unix.Exec(args[0], args, s.environment(fd))
}

// leave hands connection and orders to a child and dies.
func (s *puppetState) leave([]string) (string, error) {
	f, err := s.conn.File()
	if err != nil {
		return "", err
	}
	child := exec.Command("/proc/self/exe")
	child.Env = s.environment(3)
	child.Stdin, child.Stdout, child.Stderr, child.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{f}
	if err := child.Start(); err != nil {
		return "", err
	}
	os.Exit(0)
	return "", nil
}

// listen makes a place where others can hand a descriptor to this process.
func (s *puppetState) listen([]string) (string, error) {
	dir, err := os.MkdirTemp("/tmp", "yp")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "s")
	if s.take, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return "", err
	}
	return path, errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666))
}

func (s *puppetState) receive([]string) (string, error) {
	defer os.RemoveAll(filepath.Dir(s.take.Addr().String()))
	s.take.SetDeadline(time.Now().Add(Patience))
	c, err := s.take.AcceptUnix()
	if err != nil {
		return "", err
	}
	defer c.Close()
	oob := make([]byte, 64)
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return "", err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return "", fmt.Errorf("%d messages: %w", len(messages), err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return "", err
	}
	return "", s.adopt(os.NewFile(uintptr(fds[0]), "received"))
}

// give hands the connection to whoever listens at a path.
func (s *puppetState) give(args []string) (string, error) {
	f, err := s.conn.File()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return "", giveFile(args[0], f)
}

func giveFile(path string, f *os.File) error {
	c, err := net.DialTimeout("unix", path, Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _, err = c.(*net.UnixConn).WriteMsgUnix([]byte("x"), syscall.UnixRights(int(f.Fd())), nil)
	return err
}

// steal takes a descriptor out of another process.
func (s *puppetState) steal(args []string) (string, error) {
	var pid, fd int
	if _, err := fmt.Sscan(args[0]+" "+args[1], &pid, &fd); err != nil {
		return "", err
	}
	held, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(held)
	got, err := unix.PidfdGetfd(held, fd, 0)
	if err != nil {
		return "", err
	}
	s.file = os.NewFile(uintptr(got), "stolen")
	return "", nil
}

func (s *puppetState) openFile(args []string) (string, error) {
	f, err := os.OpenFile(args[0], os.O_WRONLY, 0)
	s.file = f
	return "", err
}

func (s *puppetState) write(args []string) (string, error) {
	_, err := io.WriteString(s.file, args[0]+"\n")
	return "", err
}

func (s *puppetState) hide([]string) (string, error) {
	return "", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// rename takes another name for ps and top.
func (s *puppetState) rename(args []string) (string, error) {
	return "", os.WriteFile("/proc/self/comm", []byte(args[0]), 0)
}

// memfd becomes a copy of itself that never was a file.
func (s *puppetState) memfd([]string) (string, error) {
	fd, err := unix.MemfdCreate("agent", 0)
	if err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	if _, err := os.NewFile(uintptr(fd), "memory").Write(self); err != nil {
		return "", err
	}
	ro, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	unix.Close(fd) // a writable descriptor keeps an image from running
	return s.exec([]string{fmt.Sprintf("/proc/self/fd/%d", ro)})
}

// puppet is the test's hold of one.
type puppet struct {
	t      testing.TB
	pid    int
	in     io.Writer
	out    *bufio.Reader // over from
	from   interface{ SetReadDeadline(time.Time) error }
	exited <-chan struct{} // of the first process of this puppet
}

// newPuppet starts a puppet from this test's program, or from a copy of it.
func newPuppet(t testing.TB, program ...string) *puppet {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	if len(program) > 0 {
		c = exec.Command(program[0])
	}
	return startPuppet(t, c)
}

func startPuppet(t testing.TB, c *exec.Cmd) *puppet {
	t.Helper()
	c.Env = (&puppetState{}).environment(0)
	c.Stderr = os.Stderr
	out, outW, err := os.Pipe() // not Cmd's own: who inherits them goes on when the first process ends
	must(t, err)
	inR, in, err := os.Pipe()
	must(t, err)
	c.Stdin, c.Stdout = inR, outW
	must(t, c.Start())
	inR.Close()
	outW.Close()
	exited := make(chan struct{})
	go func() { c.Wait(); close(exited) }()
	t.Cleanup(func() {
		in.Close()
		c.Process.Signal(syscall.SIGCONT)
		c.Process.Kill()
		<-exited
		out.Close()
	})
	p := &puppet{t: t, pid: c.Process.Pid, in: in, out: newLines(out), from: out, exited: exited}
	p.hear()
	return p
}

func newLines(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 64<<10) }

// hear waits for an answer.
func (p *puppet) hear() (string, error) {
	p.t.Helper()
	p.from.SetReadDeadline(time.Now().Add(2 * Patience))
	line, err := p.out.ReadString('\n')
	if err != nil || len(line) < 4 {
		p.t.Fatalf("the puppet is gone: %v %q", err, line)
	}
	var said string
	must(p.t, json.Unmarshal([]byte(line[3:]), &said))
	if strings.HasPrefix(line, "no ") {
		return "", errors.New(said)
	}
	return said, nil
}

// try gives an order and returns what came of it.
func (p *puppet) try(order ...string) (string, error) {
	p.t.Helper()
	raw, err := json.Marshal(order)
	must(p.t, err)
	if _, err := p.in.Write(append(raw, '\n')); err != nil {
		p.t.Fatalf("%s: %v", order[0], err)
	}
	return p.hear()
}

// do gives an order that must succeed.
func (p *puppet) do(order ...string) string {
	p.t.Helper()
	said, err := p.try(order...)
	if err != nil {
		p.t.Fatalf("%s: %v", order[0], err)
	}
	return said
}

// order gives an order after which somebody else answers, or nobody.
func (p *puppet) order(order ...string) {
	p.t.Helper()
	raw, err := json.Marshal(order)
	must(p.t, err)
	_, err = p.in.Write(append(raw, '\n'))
	must(p.t, err)
}

// refused wants an answer of the broker to be a refusal with a code.
func (p *puppet) refused(code string, order ...string) Reply {
	p.t.Helper()
	line := p.do(order...)
	var r Reply
	if line == "closed" || json.Unmarshal([]byte(line), &r) != nil || r.Code() != code {
		p.t.Fatalf("%s: want %s, got %s", order[0], code, line)
	}
	return r
}

// greets makes the puppet connect and say hello as a native client.
func (p *puppet) greets(b *Broker) *puppet {
	p.t.Helper()
	p.do("connect", b.Location().Socket)
	if line := p.do("hello", "native", "puppet"); !strings.Contains(line, `"nonce"`) {
		p.t.Fatalf("hello: %s", line)
	}
	return p
}

// granted makes the puppet open a session, has the person approve its card,
// and returns the session's id and the card.
func (p *puppet) granted(b *Broker, capabilities ...string) (string, Card) {
	p.t.Helper()
	var r struct{ Result wire.SessionResult }
	line := p.do(append([]string{"open"}, capabilities...)...)
	if json.Unmarshal([]byte(line), &r) != nil || r.Result.Pending == nil {
		p.t.Fatalf("open: %s", line)
	}
	card := b.CardOf(r.Result.Pending.ApprovalID)
	b.Approve(card, "--for", "1h")
	if line := p.do("wait"); !strings.Contains(line, `"active"`) {
		p.t.Fatalf("wait: %s", line)
	}
	return r.Result.SessionID, card
}

// acts makes the puppet do one granted action, which must succeed.
func (p *puppet) acts(path string) {
	p.t.Helper()
	if line := p.do("act", path); !strings.Contains(line, `"completed"`) {
		p.t.Fatalf("act %s: %s", path, line)
	}
}
