package sshexec_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

func TestS06_SuspendedServerEndsAsUnknown(t *testing.T) {
	s := yetttest.StartSSHD(t)
	g := newGate(t)
	tg := targetOf(s)
	tg.Keepalive, tg.RunTimeout = 100*time.Millisecond, time.Hour
	c := begin(t.Context(), tg, signerOf(t, s), action.SSH{Command: g.tell() + "; " + g.hold()})
	g.wait(t)
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a := receive(t, c)
	if e := wantError(t, a.err, sshexec.CodeUpstream, true); !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("cause = %v", e.Cause)
	}
}

// freezer is a proxy that can stop passing anything on, with both of its
// connections open: what a link that drops packets looks like.
type freezer struct {
	*fakeHost
	frozen atomic.Bool
}

func newFreezer(t testing.TB, upstream string) *freezer {
	t.Helper()
	f := &freezer{}
	f.fakeHost = newFakeHost(t, func(down net.Conn) {
		up, err := net.Dial("tcp", upstream)
		if err != nil {
			return
		}
		defer up.Close()
		go f.pass(down, up)
		f.pass(up, down)
	})
	return f
}

func (f *freezer) pass(to io.Writer, from io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if !f.frozen.Load() {
			to.Write(b[:n])
		}
	}
}

func TestS06_DeadLinkEndsAsUnknown(t *testing.T) {
	s := yetttest.StartSSHD(t)
	f := newFreezer(t, s.Address)
	g := newGate(t)
	tg := targetOf(s)
	tg.Address, tg.Keepalive, tg.RunTimeout = f.address, 100*time.Millisecond, time.Hour
	c := begin(t.Context(), tg, signerOf(t, s), action.SSH{Command: g.tell() + "; " + g.hold()})
	g.wait(t)
	f.frozen.Store(true)
	a := receive(t, c)
	wantError(t, a.err, sshexec.CodeUpstream, true)
}

// A live host answers the keepalives, so a command that prints nothing is left
// alone for longer than a dead link would be.
func TestS06_QuietCommandOnALiveLinkGoesOn(t *testing.T) {
	s := yetttest.StartSSHD(t)
	tg := targetOf(s)
	tg.Keepalive = 200 * time.Millisecond
	res, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "sleep 1.5; exit 6"})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 6)
}
