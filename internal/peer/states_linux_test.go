package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

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

// A file that was only named like a memfd is a file.
func TestU08_NamedLikeMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a file in the root directory")
	}
	f, err := os.CreateTemp("/", "memfd:*")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	defer os.Remove(f.Name())
	copyTo(t, f.Name(), 0o755)
	_, c := connect(t, f.Name())
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if words := Words(of(t, c).Evidence()); !slices.Equal(words, []string{"program replaced on disk"}) {
		t.Errorf("words %q", words)
	}
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
		if shell == "" || !slices.Equal(Words(e), []string{"runtime: " + shell + " (shell)"}) || e.Claimed.Script != script {
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

// A debugger that has gone leaves nothing that the kernel would tell: what it
// wrote into the process is there, and the evidence is as before. The package
// comment and the threat model say so.
func TestTracer_DetachedIsNotSeen(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		before := of(t, c)
		ended := make(chan error)
		go func() {
			runtime.LockOSThread() // and the thread ends with this goroutine
			ended <- patch(h.pid())
		}()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if words := Words(of(t, c).Evidence()); len(words) != 0 {
			t.Errorf("words %q", words)
		}
		if err := before.Recheck(); err != nil {
			t.Errorf("Recheck = %v", err)
		}
	})
}

// patch attaches to a process, writes a word of its program, and leaves.
func patch(pid int) error {
	if err := unix.PtraceAttach(pid); err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return err
	}
	entry := uintptr(0)
	for i := 0; i+16 <= len(text); i += 16 {
		if binary.NativeEndian.Uint64(text[i:]) == 9 { // AT_ENTRY
			entry = uintptr(binary.NativeEndian.Uint64(text[i+8:]))
		}
	}
	if _, err := unix.PtracePokeText(pid, entry, []byte("patched!")); err != nil {
		return err
	}
	return unix.PtraceDetach(pid)
}

// What the kernel alone knows of a process, one fact at a time.
func TestOf_FactsOfTheKernel(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		_, tty, name := terminal(t)
		l, path := listen(t)
		cmd := exec.Command(program(t), path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
		cmd.ExtraFiles = []*os.File{tty}
		cmd.Dir = filepath.Dir(copyProgram(t, "x"))
		h := startCmd(t, cmd, "client")
		h.expect("ok")
		e := of(t, accept(t, l)).Evidence()
		if e.Kernel.TTY != name {
			t.Errorf("terminal %q, want %q", e.Kernel.TTY, name)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", h.pid()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Kernel.Cgroup == "" || !strings.Contains(string(text), ":"+e.Kernel.Cgroup+"\n") {
			t.Errorf("cgroup %q, want one of %q", e.Kernel.Cgroup, text)
		}
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil || e.Kernel.BootID != strings.TrimSpace(string(boot)) {
			t.Errorf("boot %q, want %q, %v", e.Kernel.BootID, boot, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(pidfdOf(t, h.pid()), &st); err != nil || e.Kernel.PidfsInode != st.Ino {
			t.Errorf("pidfs inode %d, want %d, %v", e.Kernel.PidfsInode, st.Ino, err)
		}
		if e.Claimed.Cwd != cmd.Dir {
			t.Errorf("directory %q, want %q", e.Claimed.Cwd, cmd.Dir)
		}
	})
}
