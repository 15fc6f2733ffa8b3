package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// bothWays runs body with PIDFD_GET_INFO and with /proc between two polls.
func bothWays(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	usual := identify
	defer func() { identify = usual }()
	for name, way := range map[string]func(int) (identity, error){"info": identifyByInfo, "proc": identifyByProc} {
		identify = way
		t.Run(name, body)
	}
}

func TestFloor_HereAndNot(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		if err := Floor(); err != nil {
			t.Fatalf("Floor: %v", err)
		}
		usual := identify
		defer func() { identify = usual }()
		identify = func(int) (identity, error) { return identity{}, unix.ENOSYS }
		err := Floor()
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), kernelRelease()) {
			t.Fatalf("Floor = %v, want ErrUnsupported naming Linux %s", err, kernelRelease())
		}
	})
}

func TestOf_NamesTheProcessThatConnected(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			h, c := connect(t, program(t))
			p := of(t, c)
			e := p.Evidence()
			var st unix.Stat_t
			if err := unix.Stat(program(t), &st); err != nil {
				t.Fatal(err)
			}
			stat, err := readStat(h.pid())
			if err != nil {
				t.Fatal(err)
			}
			k := e.Kernel
			if k.PID != h.pid() || p.PID() != h.pid() || k.PPID != os.Getpid() || k.UID != os.Geteuid() || k.GID != os.Getegid() {
				t.Errorf("ids: %+v, want process %d of %d, user %d", k, h.pid(), os.Getpid(), os.Geteuid())
			}
			if k.ExeState != exeFile || k.ExePath != program(t) || !p.SameExecutable(st.Dev, st.Ino) || p.SameExecutable(st.Dev, st.Ino+1) {
				t.Errorf("program: %+v, want %s, inode %d", k, program(t), st.Ino)
			}
			if k.StartTicks != stat.startTicks || k.StartTicks == 0 || len(k.BootID) != 36 || k.PidfsInode == 0 {
				t.Errorf("identity since boot: %+v", k)
			}
			if f := e.Filesystem; f.Size != st.Size || f.Owner != int(st.Uid) || f.Mode != fmt.Sprintf("%04o", st.Mode&0o7777) {
				t.Errorf("file: %+v", f)
			}
			if dir, _ := os.Getwd(); e.Claimed.Cwd != dir || !slices.Equal(e.Claimed.Argv, h.cmd.Args) {
				t.Errorf("claims: %+v", e.Claimed)
			}
			if words := Words(e); len(words) != 0 {
				t.Errorf("words for an ordinary program: %q", words)
			}
			if err := p.Recheck(); err != nil || !p.Alive() {
				t.Errorf("Recheck = %v, alive %v", err, p.Alive())
			}
		})
	})
}

func TestOf_BothWaysAgree(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		_, c := connect(t, program(t))
		usual := identify
		defer func() { identify = usual }()
		identify = identifyByInfo
		byInfo := of(t, c).Evidence()
		identify = identifyByProc
		byProc := of(t, c).Evidence()
		if diff := cmp.Diff(byInfo, byProc); diff != "" {
			t.Errorf("the ways differ (-info +proc):\n%s", diff)
		}
	})
}

func TestOf_DialledNamesTheListener(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		path := filepath.Join(filepath.Dir(copyProgram(t, "x")), "s")
		taker := start(t, program(t), "taker", path, "unused")
		taker.expect("ok")
		dialer := net.Dialer{Control: ListenControl}
		c, err := dialer.DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if p := of(t, c.(*net.UnixConn)); p.PID() != taker.pid() {
			t.Errorf("peer %d, want the listener %d", p.PID(), taker.pid())
		}
	})
}

func TestOf_DoneWhileTheSocketStaysOpen(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		p := of(t, c)
		h.order("leave late") // a child keeps the socket
		wait(t, p.Done(), "the exit of the peer")
		if err := p.Recheck(); p.Alive() || !errors.Is(err, ErrGone) || errors.Is(err, ErrChanged) {
			t.Errorf("alive %v, Recheck = %v after the exit", p.Alive(), err)
		}
		h.obeys("now") // the orphan writes, so the socket was open
	})
}

// Reads of argv that never end leave the claims out and hold up nothing else.
func TestOf_ClaimsThatDoNotCome(t *testing.T) {
	_, c := connect(t, program(t))
	for range cap(claimSlots) {
		claimSlots <- struct{}{}
	}
	e := of(t, c).Evidence()
	for range cap(claimSlots) {
		<-claimSlots
	}
	if e.Claimed.Argv != nil || e.Kernel.ExeState != exeFile || e.Kernel.StartTicks == 0 {
		t.Errorf("%+v", e)
	}
}

func TestProcess_AfterClose(t *testing.T) {
	_, c := connect(t, program(t))
	p := of(t, c)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p.Alive() || p.Recheck() == nil {
		t.Error("a closed Process still vouches")
	}
	select {
	case <-p.Done():
		t.Error("Close reads as an exit")
	default:
	}
	if _, err := p.Parent(); !errors.Is(err, ErrNoAttribution) {
		t.Errorf("Parent = %v", err)
	}
}

// The client connects and leaves a child with the socket; when the broker
// gets to accept, the client is dead and reaped.
func TestU07_DeadAndReapedBeforeAccept(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			l, path := listen(t)
			h := start(t, program(t), "client", path)
			h.expect("ok")
			h.order("leave late")
			if state, err := h.cmd.Process.Wait(); err != nil || !state.Success() {
				t.Fatalf("client: %v %v", state, err)
			}
			h.obeys("now")
			c := accept(t, l)
			if p, err := Of(c); !errors.Is(err, ErrNoAttribution) {
				t.Fatalf("Of = %+v, %v, want ErrNoAttribution", p, err)
			}
			if _, err := NewReader(c, h.pid()).Read(make([]byte, 8)); !errors.Is(err, ErrSender) {
				t.Errorf("Read = %v, want the orphan refused", err)
			}
		})
	})
}

// A zombie answers to its number, but is dead.
func TestU07_ZombieIsDead(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			h, c := connect(t, program(t))
			held := of(t, c)
			if err := h.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			wait(t, held.Done(), "the death of the peer")
			if _, err := Of(c); !errors.Is(err, ErrNoAttribution) {
				t.Errorf("Of = %v, want ErrNoAttribution", err)
			}
			if _, err := held.Parent(); !errors.Is(err, ErrNoAttribution) {
				t.Errorf("Parent = %v, want ErrNoAttribution", err)
			}
		})
	})
}

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
	defer os.RemoveAll(dir)
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
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "peer.test")
	copyTo(t, file, 0o755)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
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
		_, known := namespaceDiffers(pid, "user")
		fmt.Printf("link %v, other %v\n", known, otherUserNamespace(pid))
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
			if words := Words(p.Evidence()); p.PID() != h.pid() || !slices.Equal(words, []string{"container"}) {
				t.Errorf("process %d (want %d), words %q", p.PID(), h.pid(), words)
			}
		})
	}
}

// A hidden process shows no namespace links, but more than one number.
func TestOf_HiddenContainer(t *testing.T) {
	if !otherNamespace(os.Getpid(), []int{4711, 1}) || otherNamespace(os.Getpid(), []int{4711}) {
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

func TestU08_HiddenProgram(t *testing.T) {
	asOrdinary(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			h, c := connect(t, program(t), "hidden")
			p := of(t, c)
			e := p.Evidence()
			if k := e.Kernel; k.ExeState != exeHidden || k.ExePath != "" || k.PID != h.pid() || k.UID != os.Geteuid() || k.StartTicks == 0 {
				t.Errorf("kernel facts %+v", k)
			}
			if words := Words(e); !slices.Equal(words, []string{"program hidden"}) {
				t.Errorf("words %q", words)
			}
			if p.SameExecutable(0, 0) {
				t.Error("a hidden program matches")
			}
			if err := p.Recheck(); err != nil {
				t.Errorf("Recheck = %v", err)
			}
			p.Hash(t.Context())
			if f := p.Evidence().Filesystem; f.SHA256 != "" || f.NotHashed != "program hidden" {
				t.Errorf("file facts %+v", f)
			}
			h.order("exec " + copyProgram(t, "other")) // which is not hidden
			awaitExec(t, h)
			if err := p.Recheck(); !errors.Is(err, ErrChanged) {
				t.Errorf("Recheck = %v after an exec, want ErrChanged", err)
			}
		})
	})
}

func TestU08_HidingLaterIsAChange(t *testing.T) {
	asOrdinary(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		p := of(t, c)
		h.obeys("hide")
		if err := p.Recheck(); !errors.Is(err, ErrChanged) {
			t.Errorf("Recheck = %v, want ErrChanged", err)
		}
	})
}

func TestU08_SetuidPeerIsTheOtherAccount(t *testing.T) {
	asOrdinary(t, func(t *testing.T) {
		file := os.Getenv(setuidVariable)
		if file == "" {
			t.Skip("only root can make a setuid program of another account")
		}
		h, c := connect(t, file)
		p := of(t, c)
		if k := p.Evidence().Kernel; k.UID != ordinary+1 || k.ExeState != exeHidden {
			t.Errorf("kernel facts %+v, want user %d, hidden", k, ordinary+1)
		}
		h.obeys("write x")
		if _, err := NewReader(c, p.PID()).Read(make([]byte, 8)); !errors.Is(err, ErrSender) {
			t.Errorf("Read = %v, want refused: it writes as another user than it connected as", err)
		}
	})
}

func TestU08_ReplacedOnDisk(t *testing.T) {
	attacks := map[string]func(path string) error{
		"deleted":  os.Remove,
		"replaced": func(path string) error { return os.Rename(path+"2", path) },
		"moved in": func(path string) error { return errors.Join(os.Rename(path, path+"3"), os.Rename(path+"2", path)) },
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T) {
				file := copyProgram(t, "client")
				copyTo(t, file+"2", 0o755)
				var st unix.Stat_t
				if err := unix.Stat(file, &st); err != nil {
					t.Fatal(err)
				}
				_, c := connect(t, file)
				before := of(t, c)
				if err := attack(file); err != nil {
					t.Fatal(err)
				}
				after := of(t, c)
				k := after.Evidence().Kernel
				if name == "moved in" { // the kernel follows the file to its new name
					if k.ExeState != exeFile || k.ExePath != file+"3" {
						t.Errorf("kernel facts %+v", k)
					}
				} else if words := Words(after.Evidence()); k.ExePath != file || !slices.Equal(words, []string{"program replaced on disk"}) {
					t.Errorf("words %q, path %q", words, k.ExePath)
				}
				if !after.SameExecutable(st.Dev, st.Ino) || before.Recheck() != nil {
					t.Errorf("the running image is another: %+v, Recheck = %v", k, before.Recheck())
				}
			})
		})
	}
}

// Another file mounted over the path: the link still names the path.
func TestU08_CoveredByAMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	file := copyProgram(t, "client")
	_, c := connect(t, file)
	if err := unix.Mount(program(t), file, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(file, unix.MNT_DETACH)
	if words := Words(of(t, c).Evidence()); !slices.Equal(words, []string{"program replaced on disk"}) {
		t.Errorf("words %q", words)
	}
}

func TestU08_RunsFromMemory(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l, path := listen(t)
		start(t, program(t), "memory", path).expect("ok")
		p := of(t, accept(t, l))
		if words := Words(p.Evidence()); !slices.Equal(words, []string{"runs from memory"}) {
			t.Errorf("words %q, %+v", words, p.Evidence().Kernel)
		}
	})
}

func TestU08_RuntimeAsAgent(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		script := filepath.Join(filepath.Dir(copyProgram(t, "x")), "agent.sh")
		if err := os.WriteFile(script, []byte("\"$1\" \"$2\"\nexit 0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		l, path := listen(t)
		start(t, "/bin/sh", "client", script, program(t), path).expect("ok")
		agent, err := of(t, accept(t, l)).Parent()
		if err != nil {
			t.Fatal(err)
		}
		defer agent.Close()
		e := agent.Evidence()
		shell := runtimeName(filepath.Base(e.Kernel.ExePath))
		if shell == "" || !slices.Equal(Words(e), []string{"runtime: " + shell}) || e.Claimed.Script != script {
			t.Errorf("words %q, claims %+v", Words(e), e.Claimed)
		}
	})
}

func TestTracerIsAWord(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		traced := make(chan error)
		release := make(chan struct{})
		go func() { // ptrace belongs to one thread, which ends with this goroutine
			runtime.LockOSThread()
			traced <- unix.PtraceSeize(h.pid())
			<-release
		}()
		defer close(release)
		if err := <-traced; err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("traced by pid %d", os.Getpid())
		words := Words(of(t, c).Evidence())
		if len(words) != 1 || !strings.HasPrefix(words[0], "traced by pid ") {
			t.Errorf("words %q, want %q", words, want)
		}
	})
}

func TestU09_ExecAfterConnect(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			h, c := connect(t, program(t))
			p := of(t, c)
			h.obeys("write x")
			h.order("exec " + copyProgram(t, "other"))
			awaitExec(t, h)
			if !p.Alive() {
				t.Fatal("the process did not live on")
			}
			if err := p.Recheck(); !errors.Is(err, ErrChanged) {
				t.Errorf("Recheck = %v, want ErrChanged", err)
			}
		})
	})
}

// awaitExec returns when the helper's close-on-exec output has ended.
func awaitExec(t *testing.T, h *helper) {
	t.Helper()
	if line, err := h.out.ReadString('\n'); err != io.EOF {
		t.Fatalf("helper says %q, %v instead of exec", line, err)
	}
}

func TestU09_OtherAccountAfterConnect(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change its account")
	}
	bothWays(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		p := of(t, c)
		h.obeys(fmt.Sprintf("become %d", ordinary))
		if err := p.Recheck(); !errors.Is(err, ErrChanged) {
			t.Errorf("Recheck = %v, want ErrChanged", err)
		}
		if _, err := Of(c); !errors.Is(err, ErrNoAttribution) {
			t.Errorf("Of = %v, want ErrNoAttribution", err)
		}
	})
}

func TestRecheck_WaitsForNobody(t *testing.T) {
	h, c := connect(t, program(t))
	p := of(t, c)
	if err := unix.Kill(h.pid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(h.pid(), unix.SIGCONT)
	begun := time.Now()
	if err := p.Recheck(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("a stopped peer held Recheck for %v", took)
	}
}
