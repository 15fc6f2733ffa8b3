// Package broker fixes the order of things, and does nothing else:
//
//	endpoint → peer → session → access → approval → intent → vault → executor → outcome
//
// The function perform reads in this order from top to bottom and alone calls
// an executor. What may not be proven is refused: no attribution, no session;
// no grant, no action; no durable intent, no action.
//
// What a crash leaves:
//
//	before the intent is durable    nothing was done; the operation is unknown or queued
//	after it, before the outcome    it may have been done: indeterminate at the next start
//	after the outcome was answered  durable within 10 ms; a crash in between reads as
//	                                indeterminate, the safe side
//
// The broker trusts the kernel for evidence, the vault for proofs and values,
// the ledger for what was, and no text of a client.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/httpexec"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/vault"
)

// Profile is the profile that this release offers.
const Profile = "desktop"

const (
	// outcomeGrace is how long a stop waits for the outcomes of what runs.
	outcomeGrace = 3 * time.Second
	// stopGrace is how long it waits after that for the answers to leave.
	stopGrace = 250 * time.Millisecond
)

// Limits is the sentence that says what the desktop profile does not stop. It
// stands on every card.
const Limits = "Evidence names the file a process was started from, not the code it runs or who steers it: " +
	"other software of this account can imitate or steer an agent and use its session, " +
	"within what this card says and until it ends."

// Config has what a broker is made of. All of it is required.
type Config struct {
	Location endpoint.Location
	Version  string
	Vault    *vault.Vault
	Ledger   *ledger.Ledger
	HTTP     *httpexec.Executor
	SSH      *sshexec.Executor
	Bodies   *bodies.Store
	Clock    session.Clock
	Log      *slog.Logger
	// ShimFile returns device and inode of the installed yett-mcp.
	ShimFile func() (device, inode uint64, err error)
	// OwnFile returns device and inode of the installed yett.
	OwnFile func() (device, inode uint64, err error)
	// RequireApprover refuses what would need a card while nobody would notice it.
	RequireApprover bool
	// LockAfter is how long the vault stays open unused; 0 is without end.
	LockAfter time.Duration
}

// Broker is the resident broker of one home.
type Broker struct {
	Config
	instance  string
	queue     *approval.Queue
	sessions  *session.Table
	searches  chan struct{} // bounds how many bodies are searched at once
	ops       *operations
	unwritten unwritten
	workers   *workers
	shares    *shares
	tokens    *tokens
	doors     doors
	proofs    backoff

	audience audience
	deriving chan struct{} // held while a page derives keys

	consolePort   atomic.Int32           // 0: there is none
	consoleOff    atomic.Pointer[string] // why there is none
	passkeysWrong atomic.Int64           // answers of passkeys that did not hold
	pagesRefused  refusals               // of proofs on pages

	stop     chan struct{}
	stopOnce sync.Once

	turning sync.Mutex   // held from one to the other of locked and unlocked; before mu
	heading sync.Mutex   // held while a head is signed and kept; before Vault and Ledger
	using   atomic.Int32 // what uses the vault now
	used    atomic.Int64 // when it was last used, since boot

	mu       sync.Mutex
	open     *unlocked // nil while locked
	channels map[*channel]struct{}
	pages    map[*Page]struct{}
	stopping bool
	running  sync.WaitGroup // channels
	acting   sync.WaitGroup // operations being performed
}

// unlocked is what exists only while the vault is open.
type unlocked struct {
	policy *access.Policy
	opener *ledger.Opener
	digest []byte // key of the ledger's digests
	log    *ledger.LogKey
	heads  *heads // of every policy that is applied meanwhile
}

// heads are what was signed since the unlocking. Broker.heading is held for them.
type heads struct {
	newest           []byte
	size, vaultsSize int64 // rows that the newest is over, and the one in the vault
}

// New returns a broker that serves nothing yet. A missing part is an error.
func New(c Config) (*Broker, error) {
	switch {
	case c.Vault == nil, c.Ledger == nil, c.HTTP == nil, c.SSH == nil, c.Bodies == nil, c.Clock == nil, c.Log == nil, c.ShimFile == nil, c.OwnFile == nil:
		return nil, errors.New("broker: a required part is missing")
	}
	instance := action.NewID("b_")
	stop := make(chan struct{})
	return &Broker{Config: c, instance: instance, workers: newWorkers(stop), queue: approval.NewQueue(instance, c.Clock),
		sessions: session.NewTable(c.Clock), searches: make(chan struct{}, searchesAtOnce), ops: newOperations(), shares: newShares(), tokens: newTokens(), stop: stop,
		channels: map[*channel]struct{}{}, pages: map[*Page]struct{}{}, deriving: make(chan struct{}, 1)}, nil
}

// Acceptor gives accepted connections, one at a time, until it is closed.
type Acceptor interface {
	Accept() (*net.UnixConn, error)
}

// Serve accepts channels until ctx ends or a client asks for a stop. It returns
// when every channel is closed and every outcome is handed to the ledger; the
// caller closes listener and ledger afterwards.
func (b *Broker) Serve(ctx context.Context, l Acceptor, closeListener func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go b.sweep(ctx)
	go b.followHead(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-b.stop:
		}
		closeListener()
	}()
	var failed error
	for {
		conn, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				if isTemporary(err) {
					b.Log.Warn("accepting a connection", "error", err)
					time.Sleep(50 * time.Millisecond)
					continue
				}
				failed = fmt.Errorf("accepting a connection: %w", err)
			}
			break
		}
		b.admit(conn)
	}
	b.requestStop()
	<-done
	b.shutDown()
	return failed
}

func (b *Broker) requestStop() { b.stopOnce.Do(func() { close(b.stop) }) }

// shutDown ends every session, closes every channel and waits for the outcomes
// of what runs. A worker that does not come back within its grace is left to
// recovery, which will call it indeterminate.
func (b *Broker) shutDown() {
	b.mu.Lock()
	b.stopping = true
	b.mu.Unlock()
	all := b.everyChannel()
	for _, ch := range all {
		ch.endSession(session.BrokerStopped)
	}
	over := time.Now().Add(outcomeGrace)
	acted := make(chan struct{})
	go func() {
		b.acting.Wait()
		close(acted)
	}()
	closeAnswered(all, acted, over)
	finished := make(chan struct{})
	go func() {
		b.running.Wait()
		<-acted
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(max(time.Until(over), stopGrace)):
		b.Log.Warn("stopping with work under way; its outcome will read as indeterminate")
	}
	b.HTTP.Close()
	b.SSH.Close()
	b.unwritten.look(b.Log)
	b.closeVault()
}

// closeAnswered closes each channel as soon as nothing waits on it, and all of
// them by the time over. Whoever waits for an action is told what is known of it
// once all actions have ended.
func closeAnswered(all []*channel, acted <-chan struct{}, over time.Time) {
	for len(all) > 0 && time.Now().Before(over) {
		all = slices.DeleteFunc(all, func(ch *channel) bool {
			if len(ch.slot) > 0 {
				return false
			}
			ch.close()
			return true
		})
		select {
		case <-acted:
			acted, over = nil, time.Now().Add(stopGrace)
		case <-time.After(time.Millisecond):
		}
	}
	for _, ch := range all {
		ch.close()
	}
}

// everyChannel returns the channels there are now.
func (b *Broker) everyChannel() []*channel {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*channel, 0, len(b.channels))
	for ch := range b.channels {
		all = append(all, ch)
	}
	return all
}

// register adds a channel; it reports false when the broker is stopping or has
// no room for it.
func (b *Broker) register(ch *channel) bool {
	displaced, ok := b.shares.enter(ch, ch.processKey(), b.isYett(ch.peer))
	if displaced != nil {
		displaced.end(session.ChannelClosed)
	}
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		b.shares.leave(ch)
		return false
	}
	b.channels[ch] = struct{}{}
	return true
}

func (b *Broker) unregister(ch *channel) {
	b.shares.leave(ch)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.channels, ch)
}

// isYett reports whether a process runs the broker's own program: what keeps a
// place free for the person. It gives nothing else.
func (b *Broker) isYett(p *peer.Process) bool {
	device, inode, err := b.OwnFile()
	return err == nil && p.SameExecutable(device, inode)
}

// state returns what exists only while unlocked, or nil. A vault that nobody
// used for too long is locked from that moment, whenever it is noticed.
func (b *Broker) state() *unlocked {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil && b.unusedTooLong() {
		go b.Pause(PausedIdle)
		return nil
	}
	return b.open
}

// sweep ends what is past its end although nobody uses it.
func (b *Broker) sweep(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.state() // locks what nobody uses
		b.unwritten.look(b.Log)
		b.Bodies.Expire(time.Now())
		for _, ch := range b.everyChannel() {
			if s := ch.id.Session(); s != nil {
				if why := s.Due(); why != "" {
					ch.endSession(why)
				}
				if s.EndReason() == session.Idle { // here, or by a message that came too late
					ch.close()
				}
			}
		}
	}
}

// isTemporary reports whether a connection could not be taken for a reason that
// passes: too many open files or too little memory, or a client that has left.
func isTemporary(err error) bool {
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EAGAIN} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}
