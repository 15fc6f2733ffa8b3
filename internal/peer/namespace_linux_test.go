package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Another process gets the number of the dead peer, in a pid namespace where
// nobody else takes numbers.
func TestU07_RecycledNumber(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h := startCmd(t, inNamespace(program(t), unix.CLONE_NEWPID|unix.CLONE_NEWNS), "recycle")
		h.expect("recheck true")
		h.expect("of true")
		h.expect("done")
	})
}

// inNamespace needs no right: an ordinary account takes a user namespace too.
func inNamespace(program string, flags uintptr, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if os.Geteuid() != 0 || flags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// playRecycle is pid 1 of a pid namespace.
func playRecycle([]string) error {
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
	); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return err
	}
	client := again("client", filepath.Join(dir, "s"))
	client.Stdout = nil
	in, w, err := os.Pipe()
	if err != nil {
		return err
	}
	client.Stdin = in
	if err := client.Start(); err != nil {
		return err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	held, err := Of(c)
	if err != nil {
		return err
	}
	w.Close() // the client ends
	if err := client.Wait(); err != nil {
		return err
	}
	for { // a thread of ours may take the number first
		last := fmt.Sprint(held.PID() - 1)
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(last), 0); err != nil {
			return err
		}
		next := again("idle")
		if err := next.Start(); err != nil {
			return err
		}
		if next.Process.Pid == held.PID() {
			break
		}
		next.Process.Kill()
		next.Wait()
	}
	fmt.Println("recheck", errors.Is(held.Recheck(), ErrGone))
	_, err = Of(c)
	fmt.Println("of", errors.Is(err, ErrNoAttribution))
	if err := os.RemoveAll(dir); err != nil { // the test ends us at the next line
		return err
	}
	fmt.Println("done")
	return nil
}

func TestOf_OtherUserNamespaceRefused(t *testing.T) {
	for _, hidden := range []string{"", "hidden"} {
		everywhere(t, func(t *testing.T) {
			l, path := listen(t)
			startCmd(t, inNamespace(program(t), unix.CLONE_NEWUSER, path, hidden), "client").expect("ok")
			_, err := Of(accept(t, l))
			if !errors.Is(err, ErrNoAttribution) || !strings.Contains(err.Error(), "user namespace") {
				t.Errorf("hidden %q: Of = %v, want ErrNoAttribution for the user namespace", hidden, err)
			}
		})
	}
}

// A hidden process of our account in a namespace that somebody else made: its
// links cannot be read, and still it is told.
func TestOf_HiddenInOtherUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a user namespace for another account")
	}
	file := filepath.Join(sharedDir(t), "peer.test")
	copyTo(t, file, 0o755)
	l, path := listen(t)
	judged := make(map[bool]int)
	for _, apart := range []bool{false, true} {
		cmd := exec.Command(file, path, "hidden")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
		if apart {
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Credential:  &syscall.Credential{Uid: 0, Gid: 0},
				Cloneflags:  unix.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: ordinary, Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: ordinary, Size: 1}},
			}
		}
		h := startCmd(t, cmd, "client")
		h.expect("ok")
		accept(t, l)
		judged[apart] = h.pid()
	}
	judge := exec.Command(file, fmt.Sprint(judged[false]), fmt.Sprint(judged[true]))
	judge.Dir = "/"
	judge.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	h := startCmd(t, judge, "judge")
	h.expect("link false, other false")
	h.expect("link false, other true")
}

// playJudge says of each process whether its namespace link can be read, and
// whether it is in another user namespace.
func playJudge(args []string) error {
	for _, arg := range args {
		pid, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		dir, err := openProc(pid)
		if err != nil {
			return err
		}
		_, known := dir.namespaceDiffers("user")
		fmt.Printf("link %v, other %v\n", known, dir.otherUserNamespace())
	}
	return nil
}

// Only root can make a pid namespace without a user namespace.
func TestOf_ContainerIsAWord(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a pid namespace alone")
	}
	for name, flags := range map[string]uintptr{"pid": unix.CLONE_NEWPID, "mount": unix.CLONE_NEWNS} {
		t.Run(name, func(t *testing.T) {
			l, path := listen(t)
			h := startCmd(t, inNamespace(program(t), flags, path), "client")
			h.expect("ok")
			p := of(t, accept(t, l))
			p.Hash(t.Context()) // on a mount that it sees, whoever else does
			if p.Evidence().Filesystem.SHA256 != digestOf(t, program(t)) {
				t.Errorf("%+v", p.Evidence().Filesystem)
			}
			if words := Words(p.Evidence()); p.PID() != h.pid() || !slices.Equal(words, []string{"container"}) {
				t.Errorf("process %d (want %d), words %q", p.PID(), h.pid(), words)
			}
		})
	}
}

// A hidden process shows no namespace links, but more than one number.
func TestOf_HiddenContainer(t *testing.T) {
	dir := procOf(t, os.Getpid())
	if !dir.otherNamespace([]int{4711, 1}) || dir.otherNamespace([]int{4711}) {
		t.Error("a pid namespace below ours is not told by the numbers")
	}
}

// A peer in a pid namespace that we do not see has no number here.
func TestOf_UnseenPidNamespaceRefused(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		pair := socketpair(t)
		h := startWithStdin(t, inNamespace(program(t), unix.CLONE_NEWPID, "1"), "stdio", pair[1])
		h.expect("guarded socket true")
		if _, err := pair[0].Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		h.expect("sender 1 0")
	})
}
