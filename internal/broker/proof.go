package broker

import (
	"context"
	"errors"
	"sync"
	"time"

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
func (o *operator) challenge() (any, *wire.Error) {
	nonce := o.newNonce()
	if nonce == "" {
		return nil, wire.NewError(wire.CodeBusy)
	}
	c := wire.Challenge{Nonce: nonce, Passkeys: o.passkeyChallenge()}
	for _, s := range o.b.Vault.Slots() {
		c.Slots = append(c.Slots, wire.ChallengeSlot{Name: s.Name, Salt: s.KDF.Salt, Time: s.KDF.Time,
			MemoryKiB: s.KDF.MemoryKiB, Threads: s.KDF.Threads, Form: s.KDF.Form})
	}
	return c, nil
}

func (o *operator) newNonce() string {
	now := o.b.Clock.SinceBoot()
	o.proving.Lock()
	defer o.proving.Unlock()
	for n, end := range o.nonces {
		if now >= end {
			delete(o.nonces, n)
		}
	}
	if len(o.nonces) >= maxNonces {
		return ""
	}
	n := newNonce()
	o.nonces[n] = now + nonceLife
	return n
}

// takeNonce spends a nonce of this channel.
func (o *operator) takeNonce(n string) bool {
	o.proving.Lock()
	defer o.proving.Unlock()
	end, ok := o.nonces[n]
	delete(o.nonces, n)
	return ok && o.b.Clock.SinceBoot() < end
}

// forgetProofs takes back what proofs have opened here, ends the work that they
// started, and voids the nonces of those that are on their way.
func (o *operator) forgetProofs() {
	o.proving.Lock()
	defer o.proving.Unlock()
	o.reading, o.clicks = 0, 0
	clear(o.nonces)
	if o.endWork != nil {
		o.endWork(errTakenBack)
		o.work, o.endWork = nil, nil
	}
}

var errTakenBack = errors.New("Yett was locked, or whoever asked has gone")

// provenWork is the time that work has which a proof started here: it ends when
// the proofs are taken back.
func (o *operator) provenWork() context.Context {
	o.proving.Lock()
	defer o.proving.Unlock()
	if o.work == nil {
		o.work, o.endWork = context.WithCancelCause(context.Background())
	}
	return o.work
}

// checkProof verifies the person's proof of one management request.
func (o *operator) checkProof(method string, m wire.Managed) *wire.Error {
	if m.Proof == nil {
		return wire.NewError(wire.CodeProofRequired)
	}
	if m.Proof.Assertion != nil {
		return o.checkPasskeyAct(method, m)
	}
	if m.Proof.TouchID != nil {
		return o.checkTouchIDAct(method, m)
	}
	return o.checkMAC(method, approval.ProofMessage(method, m.Request, m.Proof.Nonce), m.Proof)
}

func (o *operator) checkMAC(method string, message []byte, p *wire.Proof) *wire.Error {
	b := o.b
	if b.state() == nil {
		return wire.NewError(wire.CodeLocked)
	}
	if !o.takeNonce(p.Nonce) {
		return staleNonce()
	}
	defer b.use()()
	err := b.proofs.try(o.who.processKey(), o.who.gone(), func() error { return b.Vault.VerifyProof(message, p.MAC) })
	if errors.Is(err, errTrying) {
		return tooManyTries()
	}
	if err != nil {
		b.Log.Warn("a proof does not verify", "method", method)
		return wire.NewError(wire.CodeProofInvalid)
	}
	return nil
}

func tooManyTries() *wire.Error {
	return wire.Errorf(wire.CodeBusy, "Another proof of this process is being tried.").
		Then("Wait for its answer.")
}

// mayRead reports whether a proof has opened reading on this channel.
func (o *operator) mayRead() bool {
	o.proving.Lock()
	defer o.proving.Unlock()
	return o.b.Clock.SinceBoot() < o.reading
}

func (o *operator) openReading() {
	o.proving.Lock()
	defer o.proving.Unlock()
	o.reading = o.b.Clock.SinceBoot() + readingLife
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
