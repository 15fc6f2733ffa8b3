//go:build linux

package shim

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/wire"
)

// best returns the shortest of a few measurements: how fast it can be is the
// shim's, how slow it may become is the machine's.
func best(t *testing.T, limit time.Duration, what string, measure func() time.Duration) {
	t.Helper()
	shortest := time.Hour
	for range 10 {
		if shortest = min(shortest, measure()); shortest < limit {
			return
		}
	}
	t.Errorf("%s takes %v, want less than %v", what, shortest, limit)
}

func TestB1_EndOfStdin(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return silence }))
	rounds := 0
	best(t, 100*time.Millisecond, "the end after EOF", func() time.Duration {
		rounds++
		h := startShim(t, "--home", home).ready()
		h.send(toolCall(1, "list_access", "{}"))
		b.awaitRequest("access.list", rounds)
		h.in.Close()
		code, took := h.awaitExit()
		if code != 0 {
			t.Errorf("exit %d", code)
		}
		if r := h.await("1"); !r.Result.IsError {
			t.Errorf("the call that was given up: %+v", r)
		}
		b.awaitClosed(rounds)
		return took
	})
}

// What was asked before the end is answered where that needs nobody.
func TestB1_AnswersBeforeTheEnd(t *testing.T) {
	h := startShim(t)
	h.send(initialize(1, "2025-11-25"), initialized, request(2, "tools/list", "{}"))
	_, err := h.in.WriteString(request(3, "ping", "{}")) // no newline
	must(t, err)
	h.in.Close()
	for _, id := range []string{"1", "2", "3"} {
		if r := h.await(id); r.Error != nil {
			t.Errorf("request %s: %+v", id, r.Error)
		}
	}
	if code, _ := h.awaitExit(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A script writes its calls and closes standard input at once: a call that takes
// no time is answered, and not given up.
func TestB1_AQuickCallIsAnsweredAfterTheEnd(t *testing.T) {
	home := testHome(t)
	startBroker(t, home, ordinary(func(asked) any {
		time.Sleep(5 * time.Millisecond)
		return wire.AccessListResult{Capabilities: []wire.Access{}}
	}))
	for range 20 { // a busy machine may take longer than the shim waits
		h := startShim(t, "--home", home)
		h.send(initialize(1, "2025-11-25"), initialized, toolCall(2, "list_access", "{}"))
		h.in.Close()
		if r := h.await("2"); !r.Result.IsError {
			return
		}
	}
	t.Error("the call was given up, each time")
}

func TestB1_Signals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		best(t, 100*time.Millisecond, s.String(), func() time.Duration {
			h := startShim(t).ready()
			h.send(request(1, "ping", "{}"))
			h.await("1")
			must(t, h.cmd.Process.Signal(s))
			code, took := h.awaitExit()
			if code != 0 {
				t.Errorf("%v: exit %d", s, code)
			}
			return took
		})
	}
}

func TestM11c_ClosedStdoutEndsIt(t *testing.T) {
	best(t, 100*time.Millisecond, "the end after EPIPE", func() time.Duration {
		h := startShim(t).ready()
		h.send(request(1, "ping", "{}"))
		h.await("1")
		h.out.SetReadDeadline(time.Now()) // ends the reading goroutine
		for {
			h.mu.Lock()
			ended, changed := h.ended, h.changed
			h.mu.Unlock()
			if ended {
				break
			}
			<-changed
		}
		h.out.Close()
		h.send(request(2, "ping", "{}"))
		code, took := h.awaitExit()
		if code != exitFailed {
			t.Errorf("exit %d", code)
		}
		return took
	})
}

// playHost starts the shim and a process that holds the other ends of its
// pipes, says their ids, and waits to be killed.
func playHost(args []string) int {
	inR, inW, err := os.Pipe()
	if err != nil {
		return 1
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return 1
	}
	shim := exec.Command(args[0], args[1:]...)
	shim.Env = []string{}
	shim.Stdin, shim.Stdout, shim.Stderr = inR, outW, os.Stderr
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	holder := exec.Command(self)
	holder.Env = inRole("hold")
	holder.ExtraFiles = []*os.File{inW, outR}
	if shim.Start() != nil || holder.Start() != nil {
		return 1
	}
	inR.Close()
	outW.Close()
	out := bufio.NewReader(outR)
	fmt.Fprintln(inW, initialize(1, "2025-11-25"))
	out.ReadString('\n')
	fmt.Fprintln(inW, initialized)
	fmt.Fprintln(inW, toolCall(2, "list_access", "{}"))
	fmt.Println(shim.Process.Pid, holder.Process.Pid)
	time.Sleep(time.Minute)
	return 0
}

func TestM11b_KilledHostEndsItThoughThePipeStaysOpen(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return silence }))
	remaining, shortest := 0, time.Hour
	const rounds = 50
	for n := 1; n <= rounds; n++ {
		took, ended := killedHost(t, b, home, n)
		if !ended {
			if remaining++; remaining == 3 {
				break // each costs the whole patience
			}
		}
		shortest = min(shortest, took)
	}
	if remaining != 0 {
		t.Errorf("%d of %d remain", remaining, rounds)
	}
	if shortest > 100*time.Millisecond {
		t.Errorf("the end after the host's death takes %v", shortest)
	}
	b.awaitClosed(rounds)
}

func killedHost(t *testing.T, b *fakeBroker, home string, n int) (took time.Duration, ended bool) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	host := exec.Command(self, shimPath(), "--home", home)
	host.Env = inRole("host")
	out, err := host.StdoutPipe()
	must(t, err)
	must(t, host.Start())
	defer host.Wait()
	defer host.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pids := strings.Fields(line)
	shim, err := strconv.Atoi(pids[0])
	must(t, err)
	holder, err := strconv.Atoi(pids[1])
	must(t, err)
	defer syscall.Kill(holder, syscall.SIGKILL)
	pidfd, err := unix.PidfdOpen(shim, 0)
	must(t, err)
	defer unix.Close(pidfd)
	b.awaitRequest("access.list", n) // a call is in flight
	began := time.Now()
	must(t, host.Process.Kill())
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		got, err := unix.Poll(fds, int(patience.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if got == 0 {
			syscall.Kill(shim, syscall.SIGKILL)
		}
		return time.Since(began), got == 1
	}
}

func TestB6_StrangerOnThePipeEndsTheSession(t *testing.T) {
	for _, end := range []string{"0", "1"} {
		home := testHome(t)
		b := startBroker(t, home, ordinary(func(asked) any { return silence }))
		h := startShim(t, "--home", home).ready()
		h.send(toolCall(1, "list_access", "{}"))
		b.awaitRequest("access.list", 1)
		name := fmt.Sprintf("/proc/%d/fd/%s", h.cmd.Process.Pid, end)
		if end == "1" { // descriptor 1 is standard error by now; find the protocol's
			name = h.protocolEnd()
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		f.WriteString(toolCall(2, "list_access", "{}") + "\n")
		if r := h.await("1"); !r.Result.IsError {
			t.Errorf("fd %s: the call in flight: %+v", end, r)
		}
		if code, _ := h.awaitExit(); code != exitFailed {
			t.Errorf("fd %s: exit %d", end, code)
		}
		b.awaitClosed(1)
		if n := len(b.requests("access.list")); n != 1 {
			t.Errorf("fd %s: the stranger's line was carried out: %d requests", end, n)
		}
		wants(t, h.stderr.String(), "opened the pipe")
		if end == "0" { // what the stranger wrote was never read
			h.mu.Lock()
			if _, answered := h.replies["2"]; answered {
				t.Error("the stranger got an answer")
			}
			h.mu.Unlock()
		}
	}
}

// protocolEnd finds the shim's descriptor of our pipe.
func (h *host) protocolEnd() string {
	h.t.Helper()
	raw, err := h.out.SyscallConn()
	must(h.t, err)
	var ours string
	must(h.t, raw.Control(func(fd uintptr) { ours, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }))
	must(h.t, err)
	dir := fmt.Sprintf("/proc/%d/fd/", h.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	must(h.t, err)
	for _, e := range entries {
		if link, err := os.Readlink(dir + e.Name()); err == nil && link == ours {
			return dir + e.Name()
		}
	}
	h.t.Fatal("the shim does not hold the pipe")
	return ""
}

func TestB6_StrangerOnTheSocketEndsTheSession(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, ordinary(func(asked) any { return silence }))
	ours, theirs := socketPair(t)
	h := startHost(t, exec.Command(shimPath(), "--home", home), theirs)
	h.in = ours
	h.ready()
	h.send(toolCall(1, "list_access", "{}"))
	b.awaitRequest("access.list", 1)
	self, err := os.Executable()
	must(t, err)
	stranger := exec.Command(self, toolCall(2, "list_access", "{}")+"\n")
	stranger.Env = inRole("write")
	stranger.ExtraFiles = []*os.File{ours}
	must(t, stranger.Run())
	if r := h.await("1"); !r.Result.IsError {
		t.Errorf("the call in flight: %+v", r)
	}
	if code, _ := h.awaitExit(); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	b.awaitClosed(1)
	if n := len(b.requests("access.list")); n != 1 {
		t.Errorf("the stranger's line was carried out: %d requests", n)
	}
}

func TestB1_IdleShimIsIdle(t *testing.T) {
	h := startShim(t).ready()
	h.send(request(1, "ping", "{}"))
	h.await("1")
	before := cpuTicks(t, h.cmd.Process.Pid)
	time.Sleep(300 * time.Millisecond) // the measure is what does not happen meanwhile
	if used := cpuTicks(t, h.cmd.Process.Pid) - before; used > 3 {
		t.Errorf("an idle shim used %d ticks in 0.3 s", used)
	}
}

func cpuTicks(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	user, err := strconv.Atoi(f[11])
	must(t, err)
	system, err := strconv.Atoi(f[12])
	must(t, err)
	return user + system
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]int{"--version": 0, "--help": 0, "--nonsense": 2, "argument": 2} {
		cmd := exec.Command(shimPath(), args)
		cmd.Env = []string{}
		out, _ := cmd.Output()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit %d, want %d", args, got, want)
		}
		if args == "--version" && !strings.HasPrefix(string(out), "yett-mcp ") {
			t.Errorf("--version prints %q", out)
		}
	}
}
