package broker

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// RoleConsole is what rows and cards call a page of the console.
const RoleConsole = "console"

const (
	// maxPages bounds the pages that a proof opened and that nobody closed.
	maxPages = 64
	// derivingTime is how long a page waits for its turn to derive keys.
	derivingTime = 10 * time.Second
)

// Page is one page of the console in a browser: an operator whose evidence is
// the kernel's word on the other end of a TCP connection. That is less than of a
// channel: the kernel names the account that made the socket, and processes that
// hold it only as far as they can be looked at. So a page is given nothing for
// being one: what widens takes the person's proof, each time.
type Page struct {
	*operator
	id      string
	caller  action.Caller
	holders []*peer.Process
	closing sync.Once
	closed  chan struct{}
}

// Visit says who is at the other end of a connection to the console. It fails
// for another account, and for a process with an agent's session or one that
// such a process started, as far as the kernel shows it. The key names the
// process; it is empty where no process can be named.
func (b *Broker) Visit(local, remote netip.AddrPort) (key string, err error) {
	holders, err := b.visitors(local, remote)
	if err != nil {
		return "", err
	}
	defer closeAll(holders)
	if len(holders) > 0 {
		key = subjectKey(action.Caller{Peer: holders[0].Evidence()})
	}
	return key, nil
}

func (b *Broker) visitors(local, remote netip.AddrPort) ([]*peer.Process, error) {
	s, err := peer.TCPSocket(remote, local)
	if err != nil {
		return nil, err
	}
	if s.UID != os.Getuid() {
		return nil, fmt.Errorf("%w: a process of user %d", peer.ErrNoAttribution, s.UID)
	}
	holders := s.Holders()
	if err := b.noAgent(holders); err != nil {
		closeAll(holders)
		return nil, err
	}
	return holders, nil
}

func closeAll(all []*peer.Process) {
	for _, p := range all {
		p.Close()
	}
}

// noAgent fails if one of the processes has an agent's session or descends from
// a process that has one. It can only refuse: a process that leaves its parents
// is not seen here. The ancestors are followed once, however many agents there
// are.
func (b *Broker) noAgent(holders []*peer.Process) error {
	agents := map[peer.Name]bool{}
	for _, other := range b.agents() {
		agents[peer.NameOf(other.subject().Evidence())] = true
	}
	if len(agents) == 0 {
		return nil
	}
	for _, p := range holders {
		line, _ := p.Line() // of one that has ended there is none
		for _, x := range line {
			if agents[x] {
				return fmt.Errorf("%w: process %d belongs to the agent in process %d", peer.ErrNoAttribution, p.PID(), x.PID)
			}
		}
	}
	return nil
}

// OpenPage takes the evidence of a page, which stays closed to what needs a
// proof. What the browser calls itself is a claim. The caller closes the page.
func (b *Broker) OpenPage(local, remote netip.AddrPort, browser string) (*Page, error) {
	holders, err := b.visitors(local, remote)
	if err != nil {
		return nil, err
	}
	p := &Page{id: action.NewID("w_"), holders: holders, closed: make(chan struct{}),
		caller: action.Caller{Role: RoleConsole, Unit: action.UnitProcess, Words: []string{},
			Claims: action.Claims{Program: clip(browser)}}}
	p.operator = newOperator(b, p)
	if len(holders) > 0 {
		p.caller.Peer = holders[0].Evidence()
	} else {
		p.caller.Peer.Kernel.UID = os.Getuid()
		p.caller.Words = append(p.caller.Words, "the browser's process could not be named")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping || len(b.pages) >= maxPages {
		closeAll(holders)
		return nil, wire.NewError(wire.CodeBusy)
	}
	b.pages[p] = struct{}{}
	return p, nil
}

// Close ends the page, and with it what a proof opened for it.
func (p *Page) Close() {
	p.closing.Do(func() {
		close(p.closed)
		p.b.mu.Lock()
		delete(p.b.pages, p)
		p.b.mu.Unlock()
		closeAll(p.holders)
	})
}

// Ask makes one request of management: the same handlers, rows and proofs as
// for a command on a channel.
func (p *Page) Ask(method string, m wire.Managed) (result any, fail *wire.Error) {
	defer func() {
		if r := recover(); r != nil {
			p.b.logPanic(method, r)
			fail = wire.NewError(wire.CodeInternal)
		}
	}()
	result, fail = p.manage(method, m)
	p.recordRefused(method, fail)
	return result, fail
}

// recordRefused makes a row of a proof that was not accepted, as on a channel.
func (p *Page) recordRefused(method string, fail *wire.Error) {
	if fail == nil || fail.Code != wire.CodeProofInvalid && fail.Code != wire.CodeProofRequired && fail.Code != wire.CodeAttributionFailed {
		return
	}
	if p.b.pagesRefused.allow(p.b.Clock.SinceBoot(), 20) { // of all pages in a second: a page is opened in no time
		p.b.recordRefusal("", p.id, fail.Code, map[string]any{"method": method, "message": fail.Message})
	}
}

// Reading reports whether a proof has opened reading for this page.
func (p *Page) Reading() bool { return p.mayRead() }

// Clicking reports whether a proof lets this page decide by a click now.
func (p *Page) Clicking() bool { return p.mayClick() }

// ConsoleOff says that the broker has no console, and why.
func (b *Broker) ConsoleOff(why string) {
	b.ConsoleAt(0)
	b.consoleOff.Store(&why)
}

// console is the address of the console, or why there is none.
func (b *Broker) console() (url, problem string) {
	if origin := b.origin(); origin != "" {
		return origin + "/", ""
	}
	if why := b.consoleOff.Load(); why != nil {
		return "", *why
	}
	return "", "it has not begun to listen"
}

// consoleURL leads to a card. Whoever has it can do nothing by it.
func (b *Broker) consoleURL(i *approval.Item) *string {
	url, _ := b.console()
	if url == "" {
		return nil
	}
	url += "#waiting/" + i.ID()
	return &url
}

// Policy is the access file that is applied, or nil while locked. It is for
// views of somebody who may read.
func (b *Broker) Policy() *access.Policy {
	if open := b.state(); open != nil {
		return open.policy
	}
	return nil
}

// Changed returns a channel that is closed at the next change of what waits for
// a decision.
func (b *Broker) Changed() <-chan struct{} { return b.queue.Changed() }

// Keys are what a passphrase or recovery code gives. Wipe them.
type Keys struct {
	slot string
	keys *vault.Keys
}

// Slot is the vault's slot that the keys are for, and Unlock the key that
// opens it.
func (k *Keys) Slot() string { return k.slot }

// Unlock returns the key that opens the slot; it is wiped with k.
func (k *Keys) Unlock() []byte { return k.keys.Unlock }

// Sign makes the proof of a message.
func (k *Keys) Sign(message []byte) []byte { return vault.Proof(k.keys.Approval, message) }

// Wipe forgets the keys.
func (k *Keys) Wipe() { k.keys.Wipe() }

// Derive makes the keys of a phrase, as a command does by itself. Whether it is
// the right one is known only when something is proven by them. Derivations
// take turns: each takes the memory that makes guessing dear.
func (p *Page) Derive(phrase []byte) (*Keys, *wire.Error) {
	name := vault.SlotPassphrase
	if vault.IsRecoveryCode(phrase) {
		code, err := vault.NormalizeRecovery(phrase)
		if err != nil {
			return nil, wire.Errorf(wire.CodeProofInvalid, "The recovery code has a typing error: %v.", err)
		}
		defer clear(code)
		name, phrase = vault.SlotRecovery, code
	}
	turn := time.NewTimer(derivingTime)
	defer turn.Stop()
	select {
	case p.b.deriving <- struct{}{}:
		defer func() { <-p.b.deriving }()
	case <-turn.C:
		return nil, tooManyTries()
	}
	for _, s := range p.b.Vault.Slots() {
		if s.Name != name {
			continue
		}
		keys, err := vault.Derive(phrase, s.KDF)
		if err != nil {
			p.b.Log.Error("deriving keys", "error", err)
			return nil, wire.NewError(wire.CodeInternal)
		}
		defer returnMemory()
		return &Keys{name, keys}, nil
	}
	return nil, wire.Errorf(wire.CodeProofInvalid, "This vault has no %s slot.", name)
}

func (p *Page) name() string { return p.id }

func (p *Page) gone() <-chan struct{} { return p.closed }

// recheck looks again at the processes that were there when the page was
// opened. Once they have ended the page is no longer what was established.
func (p *Page) recheck() *wire.Error {
	for _, h := range p.holders {
		if !h.Alive() {
			return wire.Errorf(wire.CodeAttributionFailed, "The browser process that this page was opened in has ended; open the page again.")
		}
	}
	if err := p.b.noAgent(p.holders); err != nil {
		return wire.Errorf(wire.CodeAttributionFailed, "The console is not for agents, nor for what they start: open it in a browser of your own.")
	}
	return nil
}

func (p *Page) evidence() action.Caller { return p.caller }

// processKey lets the tries of one browser take turns; pages without a process
// share a turn.
func (p *Page) processKey() string {
	if len(p.holders) == 0 {
		return RoleConsole
	}
	return subjectKey(p.caller)
}

func (p *Page) kinship(agent *peer.Process) (action.Kinship, error) {
	if len(p.holders) == 0 {
		return action.Kinship{}, fmt.Errorf("%w: the browser's process could not be named", peer.ErrNoAttribution)
	}
	return peer.Kinship(p.holders[0], agent)
}
