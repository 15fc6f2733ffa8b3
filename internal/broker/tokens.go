package broker

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/httpexec"
)

// tokens keeps the access tokens that credentials are exchanged for, in memory,
// until they expire or the vault is locked. One exchange at a time is made for
// a credential: a provider that rotates refresh tokens takes a second use of
// one for theft and revokes them all.
type tokens struct {
	mu    sync.Mutex
	of    map[string]*token // by the credential's name
	epoch int               // rises when a value is replaced or the vault is locked
	quiet *sync.Cond        // told when an exchange ends; over mu
}

// token is what is kept for one credential.
type token struct {
	terms  string // what the access token was asked for
	access []byte // nil: none
	until  time.Duration
	flight chan struct{} // closed when the exchange in progress ends; nil: none
	sent   bool          // that exchange has begun to leave
	failed *mintFailure  // why the last exchange gave nothing
	wait   time.Duration // no new one before that, since boot

	unsaved *unsaved // a refresh token that is not in the vault yet
}

// unsaved is what an exchange gave while the vault could not be written. The
// refresh token is the only good one there is; the access token is not used
// before that one is durable.
type unsaved struct {
	sent   []byte
	minted *httpexec.Minted
}

const (
	// tokenMargin is how long before its end an access token is used no more.
	tokenMargin = 20 * time.Second
	// tokenLife is taken where the token endpoint says nothing.
	tokenLife = 5 * time.Minute
	// failedPause keeps those who ask again and again from the token endpoint.
	failedPause = 3 * time.Second
	// mintPatience bounds how long locking waits for an answer that has a new
	// refresh token: without it the stored one may be worth nothing.
	mintPatience = 2 * time.Second
)

func newTokens() *tokens {
	t := &tokens{of: map[string]*token{}}
	t.quiet = sync.NewCond(&t.mu)
	return t
}

// claim is what a caller finds: an access token, which it wipes; or a failure
// that is fresh; or an exchange of another caller, to wait for; or else its own
// turn to make one.
type claim struct {
	access  []byte
	failed  *mintFailure
	wait    <-chan struct{}
	turn    *token
	unsaved *unsaved
	epoch   int
}

func (t *tokens) claim(c access.Credential, now time.Duration) claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of[c.Name]
	if k == nil {
		k = &token{}
		t.of[c.Name] = k
	}
	if terms := termsOf(c); k.terms != terms && k.flight == nil {
		k.drop()
		k.terms = terms
	}
	switch {
	case k.flight != nil:
		return claim{wait: k.flight}
	case k.access != nil && now < k.until:
		return claim{access: bytes.Clone(k.access)}
	case k.failed != nil && now < k.wait && k.unsaved == nil:
		return claim{failed: k.failed}
	}
	k.flight, k.sent = make(chan struct{}), false
	u := k.unsaved
	k.unsaved = nil
	return claim{turn: k, unsaved: u, epoch: t.epoch}
}

// now is the epoch.
func (t *tokens) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// leaves marks that the exchange of a turn begins to leave.
func (t *tokens) leaves(k *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.sent = true
}

// mintResult is how a turn ended: with an access token, with a failure, or
// with neither, when nothing was sent because its caller left.
type mintResult struct {
	minted  *httpexec.Minted
	failed  *mintFailure
	unsaved *unsaved
}

// done ends a turn. What came of it is kept only if no value was replaced and
// nothing was locked meanwhile; otherwise it is wiped, and whoever waits tries
// again.
func (t *tokens) done(c claim, name string, now time.Duration, r mintResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := c.turn
	close(k.flight)
	k.flight, k.sent = nil, false
	t.quiet.Broadcast()
	if t.of[name] != k { // locked
		r.unsaved.wipe()
	} else {
		k.unsaved = r.unsaved
	}
	if t.epoch != c.epoch || t.of[name] != k {
		if r.minted != nil {
			r.minted.Wipe()
		}
		return
	}
	k.failed, k.wait = r.failed, now+failedPause
	if r.minted != nil {
		clear(k.access)
		k.access = bytes.Clone(r.minted.Access)
		k.until = now + lifeOf(r.minted.Lives)
		r.minted.Wipe()
	}
}

// spoil forgets an access token that its origin refused.
func (t *tokens) spoil(name string, access []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.of[name]; k != nil && k.access != nil && bytes.Equal(k.access, access) {
		clear(k.access)
		k.access = nil
	}
}

// forget wipes every access token: a value or the access file was replaced.
// Exchanges in progress leave none.
func (t *tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch++
	for _, k := range t.of {
		k.drop()
	}
}

// close wipes everything: the vault is being locked. It waits a moment for
// refresh tokens that are on their way.
func (t *tokens) close() {
	t.forget()
	t.settle(mintPatience)
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, k := range t.of {
		k.unsaved.wipe()
		delete(t.of, name)
	}
}

// settle waits until no exchange is on its way, or for the patience. Those that
// have not begun to leave do not count: they end with their session.
func (t *tokens) settle(patience time.Duration) {
	until := time.Now().Add(patience)
	wake := time.AfterFunc(patience, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.quiet.Broadcast()
	})
	defer wake.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.underWay() && time.Now().Before(until) {
		t.quiet.Wait()
	}
}

func (t *tokens) underWay() bool {
	for _, k := range t.of {
		if k.flight != nil && k.sent {
			return true
		}
	}
	return false
}

func (k *token) drop() {
	clear(k.access)
	k.access, k.failed = nil, nil
}

func (u *unsaved) wipe() {
	if u != nil {
		clear(u.sent)
		u.minted.Wipe()
	}
}

// termsOf is everything of a credential that its access tokens depend on.
func termsOf(c access.Credential) string {
	o := c.OAuth
	return strings.Join([]string{c.Kind, c.Place(), o.Auth, o.Secret, o.Audience, strings.Join(o.Scopes, " ")}, "\x00")
}

// lifeOf is how long an access token is used.
func lifeOf(said time.Duration) time.Duration {
	if said == 0 {
		return tokenLife
	}
	return said - min(tokenMargin, said/10)
}
