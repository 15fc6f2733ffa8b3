package yetttest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// boundaryOrders are what a puppet does to a process, or in place of one.
var boundaryOrders = map[string]puppetOrder{
	"mem": (*puppetState).mem, "ptrace": (*puppetState).ptrace, "vmread": (*puppetState).vmread, "look": (*puppetState).look,
	"seize": (*puppetState).seize, "detach": (*puppetState).detach, "poke": (*puppetState).poke, "text": (*puppetState).textAt, "acttext": (*puppetState).actText,
	"pid": (*puppetState).pid, "mkdir": (*puppetState).mkdir,
	"remove": func(_ *puppetState, args []string) (string, error) { return "", os.RemoveAll(args[0]) }, "chmod": (*puppetState).chmod,
	"fakelisten": (*puppetState).fakeListen, "fakebroker": (*puppetState).fakeBroker, "handover": (*puppetState).handOver,
}

func pidOf(arg string) (pid int) {
	fmt.Sscan(arg, &pid)
	return pid
}

func (s *puppetState) pid([]string) (string, error) { return fmt.Sprint(os.Getpid()), nil }

func (s *puppetState) mkdir([]string) (string, error) { return os.MkdirTemp("/tmp", "yf") }

func (s *puppetState) chmod(args []string) (string, error) {
	var mode uint32
	fmt.Sscanf(args[1], "%o", &mode)
	return "", os.Chmod(args[0], os.FileMode(mode))
}

// mem opens the memory of a process for writing.
func (s *puppetState) mem(args []string) (string, error) {
	f, err := os.OpenFile("/proc/"+args[0]+"/mem", os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	return "", err
}

func (s *puppetState) ptrace(args []string) (string, error) {
	if err := unix.PtraceAttach(pidOf(args[0])); err != nil {
		return "", err
	}
	_, err := unix.Wait4(pidOf(args[0]), nil, unix.WALL, nil)
	return "", err
}

// seize traces a process without stopping it.
func (s *puppetState) seize(args []string) (string, error) {
	return "", unix.PtraceSeize(pidOf(args[0]))
}

func (s *puppetState) detach(args []string) (string, error) {
	return "", unix.PtraceDetach(pidOf(args[0]))
}

// vmread reads a word where any Go program has some.
func (s *puppetState) vmread(args []string) (string, error) {
	word := make([]byte, 8)
	local := []unix.Iovec{{Base: &word[0], Len: 8}}
	_, err := unix.ProcessVMReadv(pidOf(args[0]), local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	return "", err
}

// look opens one of a process's files under /proc.
func (s *puppetState) look(args []string) (string, error) {
	b, err := os.ReadFile("/proc/" + args[0] + "/" + args[1])
	return string(b), err
}

var puppetText = []byte("/v1/own\x00\x00\x00\x00")

// textAt says where the path lies that acttext asks for.
func (s *puppetState) textAt([]string) (string, error) {
	return fmt.Sprint(uintptr(unsafe.Pointer(&puppetText[0]))), nil
}

func (s *puppetState) actText([]string) (string, error) {
	return s.act([]string{strings.TrimRight(string(puppetText), "\x00")})
}

// poke writes into a traced process.
func (s *puppetState) poke(args []string) (string, error) {
	var at uintptr
	fmt.Sscan(args[1], &at)
	_, err := unix.PtracePokeData(pidOf(args[0]), at, []byte(args[2]))
	return "", err
}

// fakeListen takes the place of the broker of a home.
func (s *puppetState) fakeListen(args []string) (string, error) {
	socket := filepath.Join(args[0], "run", "broker.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return "", err
	}
	os.Remove(socket)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return "", err
	}
	ln.SetUnlinkOnClose(false)
	s.take = ln
	return "", os.Chmod(socket, 0o600)
}

// fakeBroker answers one connection, everything with the same well-formed
// greeting, and returns what it was sent.
func (s *puppetState) fakeBroker([]string) (string, error) {
	s.take.SetDeadline(time.Now().Add(Patience))
	c, err := s.take.AcceptUnix()
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(Patience))
	got, buf := "", make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil || n == 0 {
			return got, nil
		}
		got += string(buf[:n])
		for line := range strings.Lines(string(buf[:n])) {
			var m struct{ ID json.RawMessage }
			json.Unmarshal([]byte(line), &m)
			fmt.Fprintf(c, `{"jsonrpc":"2.0","id":%s,"result":{"protocol":1,"broker_version":"0","broker_instance":"i","channel_id":"c","nonce":"n"}}`+"\n", m.ID)
		}
	}
}

// handOver keeps the socket in a child, which answers from now on, and becomes
// another program: the process that called listen is then that program.
func (s *puppetState) handOver(args []string) (string, error) {
	f, err := s.take.File()
	if err != nil {
		return "", err
	}
	child := exec.Command("/proc/self/exe")
	child.Env = []string{puppetVariable + `={"Listener":3}`, "GORACE=" + os.Getenv("GORACE")}
	child.Stdin, child.Stdout, child.Stderr, child.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{f}
	if err := child.Start(); err != nil {
		return "", err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	for fd := range 3 { // the orders are the child's
		unix.Dup2(int(null.Fd()), fd)
	}
	return "", unix.Exec(args[0], args, []string{})
}

// TestAttackBrokerMemory: a process of the account goes for the memory of the
// broker, and its descriptors, in every way that there is.
func TestAttackBrokerMemory(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	thief, other := newPuppet(t), newPuppet(t)
	for _, order := range [][]string{{"mem"}, {"vmread"}, {"look", "environ"}, {"look", "maps"}, {"look", "auxv"}, {"look", "fdinfo/0"}, {"steal", "0"}, {"ptrace"}} {
		at := func(pid int) []string {
			return append([]string{order[0], fmt.Sprint(pid)}, order[1:]...)
		}
		if _, err := thief.try(at(b.PID())...); err == nil {
			t.Errorf("%v: succeeds", order)
		} else if !strings.Contains(err.Error(), "not permitted") && !strings.Contains(err.Error(), "denied") {
			t.Errorf("%v: %v", order, err)
		}
		if _, err := thief.try(at(other.pid)...); err != nil {
			t.Errorf("%v fails on any process: this test shows nothing: %v", order, err)
		}
	}
	thief.do("detach", fmt.Sprint(other.pid))
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/own"})
	up.only(t, "GET /v1/own")
}

// TestAttackCoreDump: a crash of the broker that somebody brought about leaves
// no memory on disk, whatever limits it was started with.
func TestAttackCoreDump(t *testing.T) {
	t.Chdir(t.TempDir())
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_CORE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: was.Max, Max: was.Max}))
	defer unix.Setrlimit(unix.RLIMIT_CORE, &was)
	crash := func(c *exec.Cmd) bool {
		must(t, c.Process.Signal(syscall.SIGABRT))
		c.Wait()
		return c.ProcessState.Sys().(syscall.WaitStatus).CoreDump()
	}
	witness := exec.Command("/bin/cat")
	in, err := witness.StdinPipe()
	must(t, err)
	must(t, witness.Start())
	in.Write([]byte("\n"))
	if !crash(witness) {
		t.Fatalf("nothing dumps core here (hard limit %d): this test shows nothing", was.Max)
	}
	b := New(t)
	b.Env = []string{"GOTRACEBACK=crash"}
	b.Serve()
	b.Unlock()
	c := b.cmd
	b.cmd = nil
	if crash(c) {
		t.Error("the broker left its memory in a core file")
	}
	if cores, _ := filepath.Glob("core.*"); len(cores) > 1 {
		t.Errorf("%v", cores)
	}
}

// TestAttackTracedAgent: a debugger on the agent while the session begins is a
// word on the card.
func TestAttackTracedAgent(t *testing.T) {
	b, _ := demoBroker(t)
	p, tracer := newPuppet(t), newPuppet(t)
	tracer.do("seize", fmt.Sprint(p.pid))
	p.greets(b)
	_, card := p.granted(b, "http:demo.read")
	tracer.order("exit")
	<-tracer.exited
	found := false
	for _, word := range shown(t, card).Verified.Words {
		found = found || strings.HasPrefix(word, "traced by pid ")
	}
	if !found {
		t.Errorf("the card says %q", shown(t, card).Verified.Words)
	}
}

// TestAttackPatchedAgent: attach, patch, detach. The program's file is as it
// was and nothing traces it any more: it cannot be told. The card says so, and
// what the patched agent does stands in the record as it was done.
func TestAttackPatchedAgent(t *testing.T) {
	b, up := demoBroker(t)
	p, tracer := newPuppet(t), newPuppet(t)
	p.greets(b)
	_, card := p.granted(b, "http:demo.read")
	if limits := shown(t, card).Verified.Limits; !strings.Contains(limits, "not the code it runs") {
		t.Errorf("the card does not say it: %s", limits)
	}
	at, pid := p.do("text"), fmt.Sprint(p.pid)
	tracer.do("ptrace", pid)
	tracer.do("poke", pid, at, "/v1/evil\x00\x00\x00")
	tracer.do("detach", pid)
	if line := p.do("acttext"); !strings.Contains(line, `"completed"`) {
		t.Fatalf("%s", line)
	}
	recorded := false
	for _, row := range b.Activity() {
		recorded = recorded || row.Kind == "intent" && strings.Contains(string(row.Request), "/v1/evil")
	}
	if !recorded {
		t.Error("the record does not show what was done")
	}
	up.only(t, "GET /v1/evil")
}
