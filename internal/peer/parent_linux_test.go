package peer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/action"
)

func TestParent_IsTheLiveOne(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			l, path := listen(t)
			host := start(t, program(t), "host", "client", path)
			host.expect("ok")
			parent, err := of(t, accept(t, l)).Parent()
			if err != nil {
				t.Fatal(err)
			}
			defer parent.Close()
			if parent.PID() != host.pid() || parent.Evidence().Kernel.PidfsInode == 0 {
				t.Errorf("parent %+v, want process %d", parent.Evidence().Kernel, host.pid())
			}
			if err := host.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			wait(t, parent.Done(), "the death of the parent")
		})
	})
}

// The host dies; its child is adopted by pid 1 or by a subreaper. Neither
// started it.
func TestParent_ReparentedRefused(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		bothWays(t, func(t *testing.T) {
			l, path := listen(t)
			// Named like a container's init, so that the test does not depend on
			// who adopts orphans where it runs.
			host := start(t, copyProgram(t, "tini"), "subreaper", "leave", "client", path)
			host.expect("ok")
			p := of(t, accept(t, l))
			if err := awaitParent(p, host.pid()); err != nil {
				t.Fatal(err)
			}
			if parent, err := p.Parent(); !errors.Is(err, ErrNoAttribution) {
				t.Errorf("Parent = %+v, %v, want ErrNoAttribution", parent, err)
			}
		})
	})
}

// awaitParent returns when the kernel names pid as the parent of p.
func awaitParent(p *Process, pid int) error {
	for p.Alive() {
		status, err := statusOf(p.PID())
		if err != nil || status.ppid == pid {
			return err
		}
	}
	return ErrGone
}

// The parent goes away between the question and the hold.
func TestParent_GoneInBetween(t *testing.T) {
	h := start(t, program(t), "idle")
	child := action.KernelFacts{UID: os.Geteuid(), StartTicks: 1 << 62}
	answers := []int{h.pid(), os.Getpid()}
	ask := func() (int, error) {
		pid := answers[0]
		answers = answers[1:]
		return pid, nil
	}
	if p, err := parentOf(child, ask); !errors.Is(err, ErrNoAttribution) {
		t.Errorf("parentOf = %+v, %v, want ErrNoAttribution", p, err)
	}
}

func TestParent_Judged(t *testing.T) {
	h := start(t, program(t), "idle")
	judge := func(child action.KernelFacts) error {
		p, err := parentOf(child, func() (int, error) { return h.pid(), nil })
		if err == nil {
			p.Close()
		}
		return err
	}
	stat, err := procOf(t, h.pid()).stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := judge(action.KernelFacts{UID: os.Geteuid(), StartTicks: stat.startTicks}); err != nil {
		t.Errorf("a parent as old as its child: %v", err)
	}
	if err := judge(action.KernelFacts{UID: os.Geteuid(), StartTicks: stat.startTicks - 1}); !errors.Is(err, ErrNoAttribution) {
		t.Errorf("a parent younger than its child: %v", err)
	}
	if err := judge(action.KernelFacts{UID: os.Geteuid() + 1, StartTicks: stat.startTicks}); !errors.Is(err, ErrNoAttribution) {
		t.Errorf("a parent of another user: %v", err)
	}
	for _, pid := range []int{0, 1, -1} {
		if _, err := parentOf(action.KernelFacts{}, func() (int, error) { return pid, nil }); !errors.Is(err, ErrNoAttribution) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d: nobody", pid)) {
			t.Errorf("parent %d: %v", pid, err)
		}
	}
}

func TestParent_PidOneOfANamespaceRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a pid namespace alone")
	}
	l, path := listen(t)
	startCmd(t, inNamespace(program(t), unix.CLONE_NEWPID, "client", path), "host").expect("ok")
	p := of(t, accept(t, l))
	if _, err := p.Parent(); !errors.Is(err, ErrNoAttribution) || !strings.Contains(err.Error(), "pid 1") {
		t.Errorf("Parent = %v, want ErrNoAttribution for pid 1 of a namespace", err)
	}
}

// The shim's own parent: the death is noticed while its pipes stay open.
func TestM11_ShimNoticesTheDeathOfItsParent(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		host := start(t, program(t), "host", "shim")
		host.expect(fmt.Sprintf("parent %d", host.pid()))
		if err := host.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		host.expect("died")
	})
}

func TestParent_SupervisorOfOurOwn(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		host := start(t, copyProgram(t, "dumb-init"), "host", "shim")
		if line := host.line(); !strings.HasPrefix(line, "refused true") {
			t.Errorf("shim says %q", line)
		}
	})
}

// Two ways to be a child that somebody else has started, which the kernel does
// not tell: CLONE_PARENT, and an orphan that an ancestor adopts which is on no
// list. Each names a live ancestor, and each is a session with its own card.
func TestParent_WhatCannotBeTold(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		for _, roles := range [][]string{{"host", "sibling"}, {"subreaper", "leave"}} {
			l, path := listen(t)
			host := start(t, program(t), roles[0], roles[1], "client", path)
			host.expect("ok")
			p := of(t, accept(t, l))
			if err := awaitParent(p, host.pid()); err != nil {
				t.Fatal(err)
			}
			parent, err := p.Parent()
			if err != nil {
				t.Fatalf("%s: %v", roles, err)
			}
			if parent.PID() != host.pid() {
				t.Errorf("%s: parent %d, want %d", roles, parent.PID(), host.pid())
			}
			parent.Close()
		}
	})
}

func TestSupervisorNames(t *testing.T) {
	for _, name := range []string{"systemd", "/sbin/init", "/usr/lib/systemd/systemd", "containerd-shim", "/usr/bin/tini"} {
		if !supervises(name) {
			t.Errorf("%s is not a supervisor", name)
		}
	}
	for _, name := range []string{"", "claude", "codex", filepath.Base("/usr/bin/node"), "initiator"} {
		if supervises(name) {
			t.Errorf("%q is a supervisor", name)
		}
	}
}
