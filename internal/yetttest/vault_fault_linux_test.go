package yetttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The fault injector stands between an unmodified program and the kernel: a
// seccomp filter hands every call by which something becomes durable to the
// test, which lets it through, answers with an error, or kills the program in
// front of it. The program starts through this test binary, which installs the
// filter, passes its listener on and becomes the program.
const launchVariable = "YETTTEST_LAUNCH"

func init() {
	if fd, err := strconv.Atoi(os.Getenv(launchVariable)); err == nil {
		fmt.Fprintln(os.Stderr, "launching:", launch(fd, os.Args[1:]))
		os.Exit(99)
	}
}

// durableCalls are the calls that the filter hands over. An openat that makes
// no file goes on by itself.
var durableCalls = map[uint32]string{
	unix.SYS_OPENAT: "create", unix.SYS_FCHMOD: "chmod", unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite",
	unix.SYS_FSYNC: "sync", unix.SYS_FDATASYNC: "datasync", unix.SYS_FTRUNCATE: "truncate",
	unix.SYS_LINKAT: "link", unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_UNLINKAT: "remove",
}

func init() {
	if runtime.GOARCH == "amd64" { // the calls that newer systems do not have
		durableCalls[82], durableCalls[86], durableCalls[87] = "rename", "link", "remove"
	}
}

// launch does not return if it succeeds.
func launch(socket int, args []string) error {
	runtime.LockOSThread() // the filter is this thread's, and so is the exec
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const nr, flags = 0, 16 + 2*8 // in struct seccomp_data
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr}}
	for call := range durableCalls {
		if call == unix.SYS_OPENAT {
			filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 4},
				unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: flags},
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_CREAT, Jf: 1},
				unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
				unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
			continue
		}
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("installing the filter: %w", errno)
	}
	if err := unix.Sendmsg(socket, []byte{1}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	unix.Close(int(listener))
	unix.CloseOnExec(socket)
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return len(kv) > len(launchVariable) && kv[:len(launchVariable)] == launchVariable
	})
	return syscall.Exec(args[0], args, env)
}

// fault is what happens at one durable call of a program.
type fault struct {
	at    int           // the call, from 1 on; 0 for none
	first string        // or the first call of this name
	half  bool          // half of the write is done; the rest of the fault befalls the other half
	kill  bool          // the program is killed before the call
	errno syscall.Errno // or the call fails with this
	stays bool          // and so does every later one that needs room
}

// faultsAt are the faults of a call.
func faultsAt(at int, name string) []fault {
	list := []fault{{at: at, kill: true}, {at: at, errno: syscall.ENOSPC, stays: true}, {at: at, errno: syscall.EIO}}
	if name == "write" || name == "pwrite" {
		list = append(list, fault{at: at, half: true, kill: true}, fault{at: at, half: true, errno: syscall.ENOSPC})
	}
	return list
}

func (f fault) String() string {
	call := fmt.Sprintf("call %d", f.at)
	if f.first != "" {
		call = "the first " + f.first
	}
	if f.half {
		call = "the second half of " + call
	}
	switch {
	case f.at == 0 && f.first == "":
		return "no fault"
	case f.kill:
		return "killed before " + call
	}
	return unix.ErrnoName(f.errno) + " at " + call
}

// injector watches one program.
type injector struct {
	cmd      *exec.Cmd
	listener int

	mu    sync.Mutex
	armed bool
	fault fault
	calls []string      // since arm
	dead  bool          // the fault killed the program
	files map[int]bool  // descriptors between chmod and sync: a write there is to a file
	rest  *notification // the write of which half was let through; its other half comes next
}

// injected makes cmd start under an injector; started is to be called once it
// has been started.
func injected(t testing.TB, cmd *exec.Cmd) (started func() *injector) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	theirs := os.NewFile(uintptr(pair[1]), "launch")
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	if cmd.Env == nil {
		cmd.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	}
	cmd.Env = append(slices.Clone(cmd.Env), fmt.Sprintf("%s=%d", launchVariable, 2+len(cmd.ExtraFiles)))
	cmd.Args = append([]string{cmd.Path}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path, err = os.Executable()
	must(t, err)
	return func() *injector {
		defer unix.Close(pair[0])
		theirs.Close()
		buf, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
		n, rn, _, _, err := unix.Recvmsg(pair[0], buf, rights, unix.MSG_CMSG_CLOEXEC)
		if err != nil || n == 0 {
			cmd.Wait()
			t.Fatalf("the program did not start under the injector: %v", err)
		}
		messages, err := unix.ParseSocketControlMessage(rights[:rn])
		must(t, err)
		fds, err := unix.ParseUnixRights(&messages[0])
		must(t, err)
		in := &injector{cmd: cmd, listener: fds[0], files: map[int]bool{}}
		go in.watch()
		return in
	}
}

// arm begins to count, and lets the fault happen.
func (in *injector) arm(f fault) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed, in.fault, in.calls = true, f, nil
}

// disarm returns the calls since arm, and whether the fault killed the program.
func (in *injector) disarm() (calls []string, killed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed = false
	in.endHalfLocked()
	return in.calls, in.dead
}

// endHalfLocked returns the write of which half was let through, if there is one.
func (in *injector) endHalfLocked() (whole *notification) {
	if whole, in.rest = in.rest, nil; whole != nil {
		limitFileSize(whole.pid, unix.RLIM_INFINITY)
	}
	return whole
}

type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	answer struct {
		id    uint64
		val   int64
		errno int32
		flags uint32
	}
)

// watch answers calls until the program has ended.
func (in *injector) watch() {
	defer unix.Close(in.listener)
	for {
		ready := []unix.PollFd{{Fd: int32(in.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err == unix.EINTR {
			continue
		} else if err != nil || ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(in.listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the thread went away meanwhile, or a signal came
		}
		a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		errno, kill := in.judge(&n)
		if kill {
			in.cmd.Process.Kill()
			continue
		}
		if errno != 0 {
			a.errno, a.flags = -int32(errno), 0
		}
		unix.Syscall(unix.SYS_IOCTL, uintptr(in.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

func (in *injector) judge(n *notification) (errno syscall.Errno, kill bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	errno, kill = in.judgeLocked(n)
	if errno != 0 { // the program closes it, and the next socket may get its number
		delete(in.files, int(n.args[0]))
	}
	return errno, kill
}

func (in *injector) judgeLocked(n *notification) (errno syscall.Errno, kill bool) {
	if whole := in.endHalfLocked(); whole != nil && n.nr == whole.nr && n.args[0] == whole.args[0] {
		in.dead = in.fault.kill
		return in.fault.errno, in.fault.kill
	}
	name, fd := durableCalls[uint32(n.nr)], int(n.args[0])
	switch name {
	case "chmod":
		in.files[fd] = true
	case "sync":
		delete(in.files, fd)
	case "write":
		if !in.files[fd] { // a socket, a pipe
			return 0, false
		}
	}
	if !in.armed {
		return 0, false
	}
	in.calls = append(in.calls, name)
	if name == in.fault.first {
		in.fault.at, in.fault.first = len(in.calls), ""
	}
	switch k := len(in.calls); {
	case in.fault.at == 0 || k < in.fault.at:
	case k == in.fault.at && in.fault.half && n.args[2] > 1:
		in.halve(n, name)
	case k == in.fault.at:
		in.dead = in.fault.kill
		return in.fault.errno, in.fault.kill
	case in.fault.stays && slices.Contains([]string{"create", "write", "pwrite", "truncate", "link"}, name):
		return in.fault.errno, false
	}
	return 0, false
}

// halve lets the kernel do half of a write: beyond it lies the limit of the
// size of files, until the next call. A write without a place is the first one
// of its file.
func (in *injector) halve(n *notification, name string) {
	end := n.args[2] / 2
	if name == "pwrite" {
		end += n.args[3]
	}
	in.rest = n
	limitFileSize(n.pid, end)
}

// limitFileSize changes the soft limit of a process of the same account.
func limitFileSize(pid uint32, size uint64) {
	err := unix.Prlimit(int(pid), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil)
	if err != nil && err != unix.ESRCH { // it has ended
		fmt.Fprintln(os.Stderr, "limiting the size of files:", err)
	}
}

// serveInjected starts the broker under an injector.
func (b *Broker) serveInjected() *injector {
	b.T.Helper()
	b.cmd = exec.Command(Bin("yett"), "serve", "--home", b.Home, "--lock-on-suspend=false")
	b.cmd.Env = b.Env
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := injected(b.T, b.cmd)
	must(b.T, b.cmd.Start())
	in := started()
	for deadline := time.Now().Add(Patience); !bytes.Contains(b.log.Bytes(), []byte("serving, locked")); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.T.Fatalf("the broker did not start:\n%s", b.log)
		}
	}
	b.log.forget("serving, locked")
	return in
}

// TestInjector: it counts, fails and kills what it says.
func TestInjector(t *testing.T) {
	dir := t.TempDir()
	run := func(f fault) ([]string, error) {
		cmd := exec.Command("/bin/sh", "-c", `read go; mv "$1/a" "$1/b"`, "sh", dir)
		stdin, err := cmd.StdinPipe()
		must(t, err)
		started := injected(t, cmd)
		must(t, cmd.Start())
		in := started()
		in.arm(f)
		io.WriteString(stdin, "go\n")
		stdin.Close()
		err = cmd.Wait()
		calls, _ := in.disarm()
		return calls, err
	}
	file := func(name string) bool { _, err := os.Stat(dir + "/" + name); return err == nil }
	must(t, os.WriteFile(dir+"/a", nil, 0o600))
	calls, err := run(fault{at: 1, kill: true})
	var exit *exec.ExitError
	if !slices.Equal(calls, []string{"rename"}) || !errors.As(err, &exit) || !file("a") || file("b") {
		t.Fatalf("killed: %v, %v", calls, err)
	}
	calls, err = run(fault{at: 1, errno: syscall.EIO})
	if len(calls) == 0 || err == nil || !file("a") {
		t.Fatalf("failed: %v, %v", calls, err)
	}
	if calls, err = run(fault{}); len(calls) != 1 || err != nil || !file("b") {
		t.Fatalf("without a fault: %v, %v", calls, err)
	}
	const write = `import os, sys
sys.stdin.readline()
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
print(os.pwrite(fd, b"0123456789", 4), os.pwrite(fd, b"0123456789", 4))`
	cmd := exec.Command("/usr/bin/env", "python3", "-ISBc", write, dir+"/half")
	stdin, err := cmd.StdinPipe()
	must(t, err)
	var printed bytes.Buffer
	cmd.Stdout = &printed
	started := injected(t, cmd)
	must(t, cmd.Start())
	in := started()
	in.arm(fault{at: 2, half: true})
	stdin.Close()
	must(t, cmd.Wait())
	if got := printed.String(); got != "5 10\n" {
		calls, _ := in.disarm()
		t.Fatalf("half of a write: %q, %v", got, calls)
	}
}
