package peer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/action"
)

func kinship(t *testing.T, a, b *Process) action.Kinship {
	t.Helper()
	k, err := Kinship(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// openProcess holds a process that a test has started.
func openProcess(t *testing.T, pid int) *Process {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := hold(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestKinship_ByDescent(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			l, path := listen(t)
			host := start(t, program(t), "host", "client", path)
			host.expect("ok")
			child := of(t, accept(t, l))
			parent, self := openProcess(t, host.pid()), openProcess(t, os.Getpid())
			sibling := openProcess(t, start(t, program(t), "idle").pid())
			for _, test := range []struct {
				a, b *Process
				want string
			}{
				{child, child, action.KinSame}, {child, openProcess(t, child.PID()), action.KinSame},
				{child, parent, action.KinDescendant}, {child, self, action.KinDescendant},
				{self, child, action.KinAncestor}, {parent, child, action.KinAncestor},
				{child, sibling, action.KinCommon}, {sibling, child, action.KinCommon},
			} {
				k := kinship(t, test.a, test.b)
				if k.Relation != test.want || k.Cut || !k.Shared() {
					t.Errorf("%d and %d: %+v, want %s", test.a.PID(), test.b.PID(), k, test.want)
				}
				if named := k.Through != nil && k.Through.PID == os.Getpid() && k.Through.Name != ""; named != (test.want == action.KinCommon) {
					t.Errorf("%d and %d: through %+v", test.a.PID(), test.b.PID(), k.Through)
				}
			}
		})
	})
}

func TestAncestors_NearestFirst(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		file := copyProgram(t, "agent")
		h := start(t, file, "chain", "2")
		pid := 0
		if _, err := fmt.Sscan(h.line(), &pid); err != nil {
			t.Fatal(err)
		}
		chain, cut, err := openProcess(t, pid).Ancestors()
		if err != nil || cut || len(chain) < 3 {
			t.Fatalf("Ancestors = %+v, %v, %v", chain, cut, err)
		}
		if chain[1] != (action.Ancestor{PID: h.pid(), ExePath: file}) || chain[0].ExePath != file {
			t.Errorf("chain %+v, want process %d second", chain, h.pid())
		}
		if chain[2] != (action.Ancestor{PID: os.Getpid(), ExePath: program(t)}) {
			t.Errorf("chain %+v, want process %d third", chain, os.Getpid())
		}
	})
}

// What a supervisor has adopted or started is kin of nobody: everything is.
func TestKinship_NotThroughASupervisor(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l, path := listen(t)
		for _, role := range []string{"host", "subreaper"} {
			args := []string{"client", path}
			if role == "subreaper" {
				args = append([]string{"leave"}, args...)
			}
			host := start(t, copyProgram(t, "tini"), role, args...)
			host.expect("ok")
			p := of(t, accept(t, l))
			if err := awaitParent(p, host.pid()); err != nil {
				t.Fatal(err)
			}
			k := kinship(t, p, openProcess(t, os.Getpid()))
			if k.Relation != action.KinNone || k.Shared() || k.Cut {
				t.Errorf("%s: %+v, want nothing", role, k)
			}
		}
	})
}

// Two processes on one terminal, and a third that has left it.
func TestKinship_Terminal(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		ptmx, tty, name := terminal(t)
		cmd := exec.Command(program(t), "idle", "idle", "apart")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
		cmd.ExtraFiles = []*os.File{tty}
		h := startCmd(t, cmd, "family")
		var pids [3]int
		if _, err := fmt.Sscan(h.line(), &pids[0], &pids[1], &pids[2]); err != nil {
			t.Fatal(err)
		}
		one, two, apart := openProcess(t, pids[0]), openProcess(t, pids[1]), openProcess(t, pids[2])
		if k := kinship(t, one, two); k.Terminal != name || k.Relation != action.KinCommon {
			t.Errorf("on one terminal: %+v, want %s", k, name)
		}
		if k := kinship(t, one, apart); k.Terminal != "" {
			t.Errorf("after setsid: %+v", k)
		}
		if k := kinship(t, one, openProcess(t, h.pid())); k.Terminal != name {
			t.Errorf("with the leader: %+v, want %s", k, name)
		}
		ptmx.Close()
	})
}

// terminal makes a pseudo terminal.
func terminal(t *testing.T) (ptmx, tty *os.File, name string) {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ptmx.Close() })
	number := 0
	err = withFd(ptmx, func(fd int) error {
		var err error
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("/dev/pts/%d", number)
	tty, err = os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return ptmx, tty, name
}

// playFamily starts its children and says their numbers; "apart" has a session
// of its own.
func playFamily(args []string) error {
	var pids []string
	for _, arg := range args {
		cmd := again("idle")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: arg == "apart"}
		if err := cmd.Start(); err != nil {
			return err
		}
		pids = append(pids, fmt.Sprint(cmd.Process.Pid))
	}
	fmt.Println(strings.Join(pids, " "))
	return playIdle(nil)
}

func TestKinship_OfTheDead(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h := start(t, program(t), "idle")
		dead, self := openProcess(t, h.pid()), openProcess(t, os.Getpid())
		if err := h.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		wait(t, dead.Done(), "the death")
		for _, pair := range [][2]*Process{{dead, self}, {self, dead}} {
			if k, err := Kinship(pair[0], pair[1]); !errors.Is(err, ErrGone) || k.Relation != "" {
				t.Errorf("Kinship = %+v, %v, want ErrGone", k, err)
			}
		}
	})
}

// A chain longer than the bound is cut, and that is said.
func TestKinship_LongChainIsCut(t *testing.T) {
	h := start(t, program(t), "chain", "4")
	pid := 0
	if _, err := fmt.Sscan(h.line(), &pid); err != nil {
		t.Fatal(err)
	}
	err := openProcess(t, pid).raw.Control(func(fd uintptr) {
		for limit, cut := range map[int]bool{2: true, maxAncestors: false} {
			l, err := lineageOf(int(fd), limit)
			if err != nil || l.cut != cut || cut && len(l.line) != limit+1 {
				t.Errorf("within %d: %+v, %v, cut want %v", limit, l, err, cut)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// playChain is args[0] generations deep; the last one says its number.
func playChain(args []string) error {
	if args[0] == "0" {
		fmt.Println(os.Getpid())
		return playIdle(nil)
	}
	return again("chain", fmt.Sprint(int(args[0][0]-'1'))).Run()
}
