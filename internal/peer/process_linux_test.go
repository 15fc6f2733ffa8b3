package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
			stat, err := procOf(t, h.pid()).stat()
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

// An exec of the very same file is an exec: an interpreter runs another script.
func TestU09_ExecOfTheSameFile(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			path := program(t)
			h, c := connect(t, path)
			p := of(t, c)
			h.obeys("write x")
			if err := p.Recheck(); err != nil {
				t.Fatalf("before the exec: %v", err)
			}
			h.order("exec " + path)
			awaitExec(t, h)
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
