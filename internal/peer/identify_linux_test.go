package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// answer is what one way of reading a pidfd says, comparable.
func answer(way func(int) (identity, error), fd int) string {
	id, err := way(fd)
	switch {
	case errors.Is(err, ErrGone):
		return "gone"
	case errors.Is(err, ErrNoAttribution):
		return "no attribution"
	case err != nil:
		return "failed: " + err.Error()
	}
	return fmt.Sprintf("%+v", id)
}

// sameAnswers asks both ways about one pidfd, and wants it.
func sameAnswers(t *testing.T, what string, fd int, want string) {
	t.Helper()
	for name, way := range map[string]func(int) (identity, error){"info": identifyByInfo, "proc": identifyByProc} {
		if got := answer(way, fd); got != want {
			t.Errorf("%s, by %s: %s, want %s", what, name, got, want)
		}
	}
}

func pidfdOf(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestU07_BothWaysAnswerAlike(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		self := identity{pid: os.Getpid(), ppid: os.Getppid(), uid: os.Geteuid(), gid: os.Getegid()}
		sameAnswers(t, "this process", pidfdOf(t, self.pid), fmt.Sprintf("%+v", self))

		child := func(pid int) string {
			return fmt.Sprintf("%+v", identity{pid: pid, ppid: self.pid, uid: self.uid, gid: self.gid})
		}
		hidden, _ := connect(t, program(t), "hidden")
		sameAnswers(t, "hidden", pidfdOf(t, hidden.pid()), child(hidden.pid()))

		h := start(t, program(t), "idle")
		fd := pidfdOf(t, h.pid())
		sameAnswers(t, "live", fd, child(h.pid()))
		held := openProcess(t, h.pid())
		if err := h.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		wait(t, held.Done(), "the death")
		sameAnswers(t, "zombie", fd, "gone")
		h.cmd.Wait()
		sameAnswers(t, "reaped", fd, "gone")

		for what, flags := range map[string]uintptr{
			"in a user namespace": unix.CLONE_NEWUSER, "in a pid namespace": unix.CLONE_NEWPID,
			"in both": unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		} {
			h := startCmd(t, inNamespace(program(t), flags), "idle")
			sameAnswers(t, what, pidfdOf(t, h.pid()), child(h.pid()))
		}

		// The pair that this test made, seen from a namespace that does not see
		// this process: pid 0, and no attribution.
		pair := socketpair(t)
		outside := startWithStdin(t, inNamespace(program(t), unix.CLONE_NEWPID|unix.CLONE_NEWNS), "outsider", pair[1])
		outside.expect("cred 0")
		outside.expect("info no attribution")
		outside.expect("proc no attribution")
		outside.expect("of true")
	})
}

// playOutsider looks at who made the socket that is its standard input.
func playOutsider([]string) error {
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
	); err != nil {
		return err
	}
	cred, err := unix.GetsockoptUcred(0, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return err
	}
	fmt.Println("cred", cred.Pid)
	fd, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return err
	}
	fmt.Println("info", answer(identifyByInfo, fd))
	fmt.Println("proc", answer(identifyByProc, fd))
	c, err := net.FileConn(os.Stdin)
	if err != nil {
		return err
	}
	_, err = Of(c.(*net.UnixConn))
	fmt.Println("of", errors.Is(err, ErrNoAttribution))
	return nil
}

// An errno says nothing about life: both ways poll, whatever the kernel
// answered before.
func TestU07_ErrnoDoesNotDecide(t *testing.T) {
	h := start(t, program(t), "idle")
	p := openProcess(t, h.pid())
	usual := identify
	defer func() { identify = usual }()
	identify = func(int) (identity, error) { return identity{}, unix.ESRCH }
	if err := p.Recheck(); err != nil || !p.Alive() {
		t.Errorf("Recheck = %v, alive %v after a false ESRCH", err, p.Alive())
	}
	identify = usual
	stale := pidfdOf(t, h.pid())
	id, err := identify(stale)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.cmd.Wait()
	identify = func(int) (identity, error) { return id, nil } // as if the kernel still named it
	if _, err := hold(dup(t, stale)); !errors.Is(err, ErrNoAttribution) {
		t.Errorf("hold = %v, want the dead refused", err)
	}
	if err := p.Recheck(); !errors.Is(err, ErrGone) {
		t.Errorf("Recheck = %v, want ErrGone", err)
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// In a user namespace of its own any process may say what its program is: the
// link in /proc then names a file that it never ran. It has no attribution.
func TestU08_DisguisedInAUserNamespace(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l, path := listen(t)
		disguise := "/bin/true"
		h := startCmd(t, inNamespace(program(t), unix.CLONE_NEWUSER, disguise, path), "disguised")
		h.expect("ok")
		var mask, face unix.Stat_t
		if err := errors.Join(unix.Stat(disguise, &mask), unix.Stat(fmt.Sprintf("/proc/%d/exe", h.pid()), &face)); err != nil {
			t.Fatal(err)
		}
		if mask.Ino != face.Ino {
			t.Fatal("the link was not changed: this attack shows nothing")
		}
		if _, err := Of(accept(t, l)); !errors.Is(err, ErrNoAttribution) || !strings.Contains(err.Error(), "user namespace") {
			t.Errorf("Of = %v, want ErrNoAttribution for the user namespace", err)
		}
	})
}

// playDisguised puts copies of its pages in their place, so that it runs from
// no file, names args[0] as its program, and becomes a client of args[1].
func playDisguised(args []string) error {
	mask, err := unix.Open(args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := leaveFile(); err != nil {
		return err
	}
	if err := nameProgram(mask); err != nil {
		return err
	}
	return playClient(args[1:])
}

// leaveFile replaces every mapping of this program's file by anonymous memory
// with the same content.
func leaveFile() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, " "+self+"\n") {
			continue
		}
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
			return err
		}
		if err := replaceMapping(from, to-from, mode); err != nil {
			return err
		}
	}
	return nil
}

func replaceMapping(at, size uintptr, mode string) error {
	protection := 0
	for i, bit := range []int{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if mode[i] != '-' {
			protection |= bit
		}
	}
	copied, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON, ^uintptr(0), 0)
	if errno != 0 {
		return errno
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	content := make([]byte, size)
	if _, err := memory.ReadAt(content, int64(at)); err != nil {
		return err
	}
	if _, err := memory.WriteAt(content, int64(copied)); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_MPROTECT, copied, size, uintptr(protection)); errno != 0 {
		return errno
	}
	_, _, errno = unix.RawSyscall6(unix.SYS_MREMAP, copied, size, size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, at, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// nameProgram is prctl(PR_SET_MM, PR_SET_MM_MAP) with the map that the process
// has, but for the program.
func nameProgram(fd int) error {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after) // fields[0] is field 3
	var numbers [53]uint64
	for i, field := range fields {
		fmt.Sscan(field, &numbers[i+3])
	}
	brk, _, _ := unix.RawSyscall(unix.SYS_BRK, 0, 0, 0)
	m := struct {
		startCode, endCode, startData, endData, startBrk, brk uint64
		startStack, argStart, argEnd, envStart, envEnd        uint64
		auxv                                                  uint64
		auxvSize, exe                                         uint32
	}{
		numbers[26], numbers[27], numbers[45], numbers[46], numbers[47], uint64(brk),
		numbers[28], numbers[48], numbers[49], numbers[50], numbers[51], 0, 0, uint32(fd),
	}
	_, _, errno := unix.Syscall6(unix.SYS_PRCTL, unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m), 0, 0)
	if errno != 0 {
		return fmt.Errorf("naming another program: %w", errno)
	}
	return nil
}
