package broker

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/httpexec"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

const patience = 30 * time.Second

// shifted is the system's clock, ahead of it by what a test wants.
type shifted struct{ ahead atomic.Int64 }

func (c *shifted) Now() time.Time { return time.Now() }
func (c *shifted) SinceBoot() time.Duration {
	return session.SystemClock{}.SinceBoot() + time.Duration(c.ahead.Load())
}
func (c *shifted) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// here is a broker in this process, unlocked.
type here struct {
	*Broker
	t     *testing.T
	clock *shifted
	keys  *vault.Keys
}

func startHere(t *testing.T, lockAfter time.Duration) *here {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "yl")
	must(err)
	home := filepath.Join(dir, "h")
	must(os.Mkdir(home, 0o700))
	_, err = vault.Create(home, []byte("four words of a passphrase"))
	must(err)
	v, err := vault.Load(home)
	must(err)
	loc, err := endpoint.InHome(home)
	must(err)
	listener, err := endpoint.Listen(loc)
	must(err)
	l, err := ledger.Open(home, ledger.Options{AuditPublicKey: v.AuditPublicKey()})
	must(err)
	kept, err := bodies.Open(home, bodies.Options{})
	must(err)
	none := func() []int { return nil }
	file := func() (uint64, uint64, error) { return 0, 0, os.ErrNotExist }
	h := &here{t: t, clock: &shifted{}}
	h.Broker, err = New(Config{Location: loc, Version: "test", Vault: v, Ledger: l, HTTP: httpexec.New(httpexec.Options{OwnPorts: none}),
		SSH: sshexec.New(sshexec.Options{OwnPorts: none}), Bodies: kept, Clock: h.clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		ShimFile: file, OwnFile: file, LockAfter: lockAfter})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, listener, listener.Close) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		kept.Close()
		l.Close()
		os.RemoveAll(dir)
	})
	for _, s := range v.Slots() {
		if s.Name == vault.SlotPassphrase {
			h.keys, err = vault.Derive([]byte("four words of a passphrase"), s.KDF)
			must(err)
		}
	}
	c := h.dial()
	defer c.Close()
	c.call(wire.MethodVaultUnlock, wire.Managed{Request: marshal(wire.Unlock{Slot: vault.SlotPassphrase, UnlockKey: h.keys.Unlock})}, nil)
	return h
}

// caller is a channel of this process.
type caller struct {
	net.Conn
	t     *testing.T
	in    *wire.FrameReader
	hello wire.HelloResult
	s     wire.SessionResult
	seq   int64
}

func (h *here) dial() *caller {
	h.t.Helper()
	conn, err := net.Dial("unix", h.Location.Socket)
	if err != nil {
		h.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	c := &caller{Conn: conn, t: h.t, in: wire.NewFrameReader(conn)}
	c.call(wire.MethodHello, wire.Hello{ProtocolMin: 1, ProtocolMax: 1, Program: "test", Role: wire.RoleNative}, &c.hello)
	return c
}

func (h *here) open() *caller {
	h.t.Helper()
	c := h.dial()
	if fail := c.call(wire.MethodSessionOpen, wire.SessionOpen{Nonce: c.hello.Nonce, Capabilities: []string{}}, &c.s); fail != nil {
		h.t.Fatal(fail)
	}
	return c
}

func (c *caller) call(method string, params, result any) *wire.Error {
	c.t.Helper()
	frame, err := wire.EncodeRequest(1, method, params)
	if err == nil {
		_, err = c.Write(frame)
	}
	if err == nil {
		frame, err = c.in.Next()
	}
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	_, got, fail, err := wire.DecodeReply(frame)
	if err != nil {
		c.t.Fatal(err)
	}
	if fail == nil && result != nil {
		if err := got.Decode(result); err != nil {
			c.t.Fatal(err)
		}
	}
	return fail
}

func (c *caller) list() *wire.Error {
	c.seq++
	return c.call(wire.MethodAccessList, wire.Envelope{SessionID: c.s.SessionID, Sequence: c.seq}, nil)
}

// Ends are judged at use: the message that comes a moment too late is refused
// for the right reason, whatever timers do.
func TestEndsAreJudgedAtUse(t *testing.T) {
	h := startHere(t, 0)
	c := h.open()
	h.clock.pass(session.IdleLife - time.Minute)
	if fail := c.list(); fail != nil {
		t.Fatalf("before its end: %v", fail)
	}
	h.clock.pass(session.IdleLife)
	if fail := c.list(); fail == nil || fail.Code != wire.CodeSessionEnded || fail.Data["end_reason"] != session.Idle {
		t.Errorf("idle: %v", fail)
	}
	c = h.open()
	for range 4 {
		h.clock.pass(session.MaxLife / 4)
		h.sessions.All()[1].Due() // asking is no use
		if s := h.sessions.All()[1]; s.EndReason() == "" && s.Due() == "" {
			c.list()
		}
	}
	if fail := c.list(); fail == nil || fail.Data["end_reason"] != session.Expired {
		t.Errorf("after its end: %v", fail)
	}
}

// A vault that nobody used for too long is locked at the next use, before any
// timer looks, and its sessions are paused.
func TestLockAfterIsJudgedAtUse(t *testing.T) {
	h := startHere(t, time.Hour)
	c := h.open()
	h.clock.pass(time.Hour - time.Minute)
	if h.state() == nil {
		t.Fatal("locked too early")
	}
	end := h.use()
	h.clock.pass(2 * time.Hour) // sleep counts
	if h.state() == nil {
		t.Fatal("locked in the middle of an action")
	}
	end()
	h.clock.pass(time.Hour)
	if h.state() != nil {
		t.Fatal("open although nobody used it")
	}
	if fail := c.list(); fail == nil || fail.Code != wire.CodeLocked {
		t.Errorf("a session answers %v", fail)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, paused := h.sessions.Live(); paused == 1 && h.Vault.Locked() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it was never locked")
		}
	}
}

// What a channel held is given back: goroutines but those that wait for the next
// piece of work, which are bounded, and the broker's own lists.
func TestChannelsLeaveNoGoroutine(t *testing.T) {
	h := startHere(t, 0)
	settled := func() {
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if live, _ := h.sessions.Live(); live == 0 && len(h.everyChannel()) == 0 {
				break
			}
		}
	}
	busy := func() int { return runtime.NumGoroutine() - len(h.workers.idle) }
	h.open().Close()
	settled()
	before := busy()
	for range 20 {
		var all []*caller
		for range 10 {
			all = append(all, h.open())
		}
		for _, c := range all {
			c.Close()
		}
		settled()
	}
	for deadline := time.Now().Add(patience); busy() > before && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := busy(); n > before {
		t.Errorf("%d busy goroutines, were %d", n, before)
	}
	h.shares.mu.Lock()
	defer h.shares.mu.Unlock()
	if n := len(h.shares.byOwner); n != 0 || h.shares.held != 0 || h.shares.others.Len() != 0 {
		t.Errorf("%d processes hold %d bytes and %d channels", n, h.shares.held, h.shares.others.Len())
	}
}
