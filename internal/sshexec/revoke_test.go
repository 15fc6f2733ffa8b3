package sshexec_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// stall is a proxy in front of a real server. It passes on so many pieces of what
// the server says, then nothing more, and notes when bytes of the client come.
type stall struct {
	*fakeHost
	stalled chan struct{} // closed when it passes on no more
	mu      sync.Mutex
	last    time.Time // when the last byte of the client came
	ended   time.Time // when the client had closed
}

func newStall(t testing.TB, upstream string, pieces int) *stall {
	t.Helper()
	s := &stall{stalled: make(chan struct{})}
	s.fakeHost = newFakeHost(t, func(down net.Conn) {
		if pieces == 0 {
			close(s.stalled)
			s.listen(down, io.Discard)
			return
		}
		up, err := net.Dial("tcp", upstream)
		if err != nil {
			return
		}
		defer up.Close()
		go func() {
			b := make([]byte, 64<<10)
			for left := pieces; left > 0; left-- {
				n, err := up.Read(b)
				if err != nil {
					return
				}
				if left == 1 { // what answers this one is the last that may come
					close(s.stalled)
				}
				down.Write(b[:n])
			}
		}()
		s.listen(down, up)
	})
	return s
}

func (s *stall) listen(down net.Conn, up io.Writer) {
	b := make([]byte, 64<<10)
	for {
		n, err := down.Read(b)
		s.mu.Lock()
		if n > 0 {
			s.last = time.Now()
		}
		if err != nil {
			s.ended = time.Now()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
		up.Write(b[:n])
	}
}

// atOnce is E5: nothing new on the wire this long after a revocation.
const atOnce = 100 * time.Millisecond

// TestE5_NothingOnTheWireAfterARevocation ends a call while the connection is
// being made, after every piece that a server sends until then: in the version
// exchange, in the key exchange and in authentication, directly and through a
// jump host. What the wire sees is measured at the server's side.
func TestE5_NothingOnTheWireAfterARevocation(t *testing.T) {
	last, outer := yetttest.StartSSHD(t), yetttest.StartSSHD(t)
	stalls := 0
	for _, through := range []string{"directly", "at the jump host", "behind the jump host"} {
		for pieces := range 7 {
			tg, s := targetOf(last), (*stall)(nil)
			switch through {
			case "directly":
				s = newStall(t, last.Address, pieces)
				tg.Address = s.address
			case "at the jump host":
				s = newStall(t, outer.Address, pieces)
				tg.Via = []sshexec.Hop{hopOf(t, "outer", outer)}
				tg.Via[0].Address = s.address
			default:
				s = newStall(t, last.Address, pieces)
				tg.Via = []sshexec.Hop{hopOf(t, "outer", outer)}
				tg.Address = s.address
			}
			ctx, cancel := context.WithCancel(t.Context())
			call := begin(ctx, tg, signerOf(t, last), action.SSH{Command: "true"})
			select {
			case <-s.stalled:
			case a := <-call: // the server says less than that before it is done
				if a.err != nil {
					t.Errorf("%s, %d pieces: %v", through, pieces, a.err)
				}
				cancel()
				continue
			}
			stalls++
			cancel()
			revoked := time.Now()
			a := receive(t, call)
			wantError(t, a.err, sshexec.CodeUpstream, false)
			happens(t, s.closed, "closing the connection")
			s.mu.Lock()
			if late := s.last.Sub(revoked); late > atOnce {
				t.Errorf("%s, %d pieces: bytes %s after the revocation", through, pieces, late)
			}
			if late := s.ended.Sub(revoked); late > atOnce {
				t.Errorf("%s, %d pieces: closed %s after the revocation", through, pieces, late)
			}
			s.mu.Unlock()
		}
	}
	if stalls < 15 {
		t.Errorf("only %d phases were met", stalls)
	}
}

// A call that ends while its host's name is asked for dials nothing, whatever the
// answer is then.
func TestE5_NothingIsDialledAfterARevocation(t *testing.T) {
	h := newFakeHost(t, swallow)
	asked := make(chan struct{})
	e := sshexec.New(sshexec.Options{OwnPorts: noPorts, Resolve: func(ctx context.Context, _ string) ([]netip.Addr, error) {
		close(asked)
		<-ctx.Done()
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	tg := hostTarget(h, newTestKey(t))
	_, port, err := net.SplitHostPort(h.address)
	if err != nil {
		t.Fatal(err)
	}
	tg.Address = net.JoinHostPort("host.example", port)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err = e.Do(ctx, tg, newTestKey(t), action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeUpstream, false)
	select {
	case <-h.accepted:
		t.Error("the host was dialled")
	default:
	}
}
