package sshexec_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// A host behind others is asked for its keys through them. Each of them has to
// prove itself and gets its own key; the one that is asked gets none.
func TestHostKeysOfAHostBehindOthers(t *testing.T) {
	outer, inner, last := yetttest.StartSSHD(t), yetttest.StartSSHD(t), yetttest.StartSSHD(t)
	way := []sshexec.Hop{hopOf(t, "outer", outer), hopOf(t, "inner", inner)}
	keys, err := newExecutor().HostKeys(t.Context(), last.Address, way)
	if err != nil || len(keys) != 1 || publicLine(keys[0]) != last.HostKey {
		t.Fatalf("%v, %v; want %s", keys, err, last.HostKey)
	}
	if n := []int{outer.Accepted(), inner.Accepted()}; n[0] != 1 || n[1] != 1 {
		t.Errorf("connections at the jump hosts: %v", n)
	}
	asked := last.Accepted()
	way[1].HostKeys = []string{last.HostKey} // a key of the way, but not its own
	_, err = newExecutor().HostKeys(t.Context(), last.Address, way)
	wantHop(t, err, sshexec.CodeHostKey, "inner")
	way[1] = hopOf(t, "inner", inner)
	way[1].Signer = newTestKey(t)
	_, err = newExecutor().HostKeys(t.Context(), last.Address, way)
	wantHop(t, err, sshexec.CodeAuth, "inner")
	_, err = newExecutor().HostKeys(t.Context(), last.Address, nil)
	wantError(t, err, sshexec.CodeInternal, false)
	if n := last.Accepted(); n != asked {
		t.Errorf("%d connections to a host behind one that did not prove itself", n-asked)
	}
	_, err = newExecutor().HostKeys(t.Context(), "127.0.0.1:1", way[:1])
	wantHop(t, err, sshexec.CodeUpstream, "outer")
	last.Stop()
	if log := last.Log(); strings.Contains(log, "publickey") {
		t.Errorf("a key was offered:\n%s", log)
	}
}

// The end of the call ends the connection to the jump host, whatever hangs
// behind it.
func TestHostKeysEndWithTheCall(t *testing.T) {
	arrived := make(chan struct{}, 8)
	silent := newFakeHost(t, func(c net.Conn) {
		c.Read(make([]byte, 1)) // the question itself has begun
		arrived <- struct{}{}
		swallow(c)
	})
	j := &jumpServer{host: newTestKey(t), lead: func(string) (net.Conn, error) { return net.Dial("tcp", silent.address) }}
	h := newFakeHost(t, j.serve)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan answer, 1)
	go func() {
		_, err := newExecutor().HostKeys(ctx, "next.example:22", []sshexec.Hop{j.hop(t, h, newTestKey(t))})
		done <- answer{err: err}
	}()
	happens(t, arrived, "asking the host")
	cancel()
	if a := receive(t, done); !errors.Is(a.err, context.Canceled) {
		t.Errorf("err = %v", a.err)
	}
	happens(t, h.closed, "closing the connection")
}
