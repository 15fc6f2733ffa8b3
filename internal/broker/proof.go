package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	// nonceLife is how long a challenge may be answered.
	nonceLife = 5 * time.Minute
	maxNonces = 16
	// readingLife is how long one proof opens reading on a channel.
	readingLife = 15 * time.Minute
)

// challenge gives the parameters to derive keys with, and a nonce for one
// proof on this channel.
func (ch *channel) challenge() (any, *wire.Error) {
	nonce := ch.newNonce()
	if nonce == "" {
		return nil, wire.NewError(wire.CodeBusy)
	}
	c := wire.Challenge{Nonce: nonce}
	for _, s := range ch.b.Vault.Slots() {
		c.Slots = append(c.Slots, wire.ChallengeSlot{Name: s.Name, Salt: s.KDF.Salt, Time: s.KDF.Time,
			MemoryKiB: s.KDF.MemoryKiB, Threads: s.KDF.Threads, Form: s.KDF.Form})
	}
	return c, nil
}

func (ch *channel) newNonce() string {
	now := ch.b.Clock.SinceBoot()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for n, end := range ch.nonces {
		if now >= end {
			delete(ch.nonces, n)
		}
	}
	if len(ch.nonces) >= maxNonces {
		return ""
	}
	n := newNonce()
	ch.nonces[n] = now + nonceLife
	return n
}

// takeNonce spends a nonce of this channel.
func (ch *channel) takeNonce(n string) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	end, ok := ch.nonces[n]
	delete(ch.nonces, n)
	return ok && ch.b.Clock.SinceBoot() < end
}

// checkProof verifies the person's proof of one management request.
func (ch *channel) checkProof(method string, m wire.Managed) *wire.Error {
	if m.Proof == nil {
		return wire.NewError(wire.CodeProofRequired)
	}
	return ch.checkMAC(method, approval.ProofMessage(method, m.Request, m.Proof.Nonce), m.Proof)
}

func (ch *channel) checkMAC(method string, message []byte, p *wire.Proof) *wire.Error {
	b := ch.b
	if b.state() == nil {
		return wire.NewError(wire.CodeLocked)
	}
	if !ch.takeNonce(p.Nonce) {
		return wire.Errorf(wire.CodeProofInvalid, "The proof's nonce is unknown, used or too old.")
	}
	defer b.use()()
	err := b.proofs.try(ch.processKey(), ch.closed, func() error { return b.Vault.VerifyProof(message, p.MAC) })
	if errors.Is(err, errTrying) {
		return tooManyTries()
	}
	if err != nil {
		b.Log.Warn("a proof does not verify", "method", method)
		return wire.NewError(wire.CodeProofInvalid)
	}
	return nil
}

// processKey names the process on the channel.
func (ch *channel) processKey() string {
	return subjectKey(action.Caller{Peer: ch.peer.Evidence()})
}

func tooManyTries() *wire.Error {
	e := wire.Errorf(wire.CodeBusy, "Another proof of this process is being tried.")
	e.NextStep = "Wait for its answer."
	return e
}

// mayRead reports whether a proof has opened reading on this channel.
func (ch *channel) mayRead() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.b.Clock.SinceBoot() < ch.reading
}

func (ch *channel) openReading() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.reading = ch.b.Clock.SinceBoot() + readingLife
}

var errGone = errors.New("the channel was closed before its proof was tried")

// errTrying is returned to a process that already waits for a try: the others
// come next.
var errTrying = errors.New("another proof of this process is being tried")

// backoff slows the guessing of proofs: after three failures each further try
// waits, doubling from one second to thirty. Tries come one at a time, and of
// each process at most one waits, so that whoever guesses on many channels
// holds up the person by one try and not by all of them.
type backoff struct {
	turn sync.Mutex // held for the length of a try

	mu       sync.Mutex
	failures int
	last     time.Time
	waiting  map[string]bool
}

func (b *backoff) try(subject string, gone <-chan struct{}, check func() error) error {
	b.mu.Lock()
	if b.waiting[subject] {
		b.mu.Unlock()
		return errTrying
	}
	if b.waiting == nil {
		b.waiting = map[string]bool{}
	}
	b.waiting[subject] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting, subject)
	}()
	b.turn.Lock()
	defer b.turn.Unlock()
	if !b.pause(gone) { // a try is not made earlier by hanging up
		return errGone
	}
	err := check()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.failures = 0
		return nil
	}
	b.failures++
	b.last = time.Now()
	return err
}

// pause waits until the next try may be made. It reports false when the channel
// was closed meanwhile.
func (b *backoff) pause(gone <-chan struct{}) bool {
	b.mu.Lock()
	over, last := b.failures-3, b.last
	b.mu.Unlock()
	if over < 0 {
		return true
	}
	delay := min(time.Second<<min(over, 5), 30*time.Second)
	wait := time.NewTimer(time.Until(last.Add(delay)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-gone:
		return false
	}
}
