package httpexec

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"maps"
	"sync"
	"time"
)

const (
	idleTimeout    = 30 * time.Second
	lifeTimeout    = 5 * time.Minute // then the name is resolved and checked again
	maxIdlePerKey  = 8
	maxIdleOverall = 256
)

// poolKey is everything that must be equal for two requests to share a
// connection: another name for the same address, other leave to dial, another
// credential and another session each have their own.
type poolKey struct {
	scheme, host      string
	port              int
	private, insecure bool
	credential        [sha256.Size]byte
	session           string
}

// pool keeps connections for later safe requests.
type pool struct {
	salt [32]byte // digests in keys are of no use outside this process

	mu     sync.Mutex
	idle   map[poolKey][]*conn
	count  int // over idle
	busy   map[*conn]struct{}
	resume map[poolKey]tls.ClientSessionCache // what makes the next handshake short
	closed bool
}

func newPool() *pool {
	p := &pool{idle: make(map[poolKey][]*conn), busy: make(map[*conn]struct{}),
		resume: make(map[poolKey]tls.ClientSessionCache)}
	rand.Read(p.salt[:])
	return p
}

func (p *pool) key(t Target, c Credential) poolKey {
	m := hmac.New(sha256.New, p.salt[:])
	for _, s := range []string{c.Kind, c.Header, c.Prefix, t.Way.id()} {
		m.Write([]byte(s))
		m.Write([]byte{0})
	}
	m.Write(c.Secret)
	k := poolKey{scheme: t.Scheme, host: t.Host, port: t.Port, private: t.Private, insecure: t.Insecure, session: t.Session}
	m.Sum(k.credential[:0])
	return k
}

// tickets is where the TLS sessions of a key are remembered: a new connection
// of the same session and credential need not prove everything again. Nothing of
// the sort is shared between sessions.
func (p *pool) tickets(k poolKey) tls.ClientSessionCache {
	if k == (poolKey{}) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.resume[k]
	if c == nil && !p.closed {
		for other := range p.resume { // any of them
			if len(p.resume) < maxIdleOverall {
				break
			}
			delete(p.resume, other)
		}
		c = tls.NewLRUClientSessionCache(2)
		p.resume[k] = c
	}
	return c
}

// take returns a kept connection that was quiet a moment ago, or nil.
func (p *pool) take(k poolKey, deadline time.Time) *conn {
	for {
		c := p.pop(k)
		if c == nil {
			return nil
		}
		// The deadline comes first: peeking obeys it, and the old one may have passed.
		if time.Since(c.born) < lifeTimeout && c.rw.SetDeadline(deadline) == nil && quiet(c.raw) {
			return c
		}
		p.give(c, false)
	}
}

func (p *pool) pop(k poolKey) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[k]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1] // the one used last is the likeliest to be alive
	p.removeLocked(c)
	p.busy[c] = struct{}{}
	return c
}

// adopt makes a new connection known, so that the end of its session reaches it.
func (p *pool) adopt(c *conn) {
	p.mu.Lock()
	p.busy[c] = struct{}{}
	p.mu.Unlock()
}

// give ends the use of c: it is kept for another request or closed.
func (p *pool) give(c *conn, keep bool) {
	p.mu.Lock()
	delete(p.busy, c)
	keep = keep && !p.closed && !c.pending && p.count < maxIdleOverall && len(p.idle[c.key]) < maxIdlePerKey
	if keep {
		p.idle[c.key] = append(p.idle[c.key], c)
		p.count++
		if c.timer == nil {
			c.timer = time.AfterFunc(idleTimeout, func() { p.expire(c) })
		} else {
			c.timer.Reset(idleTimeout)
		}
	}
	p.mu.Unlock()
	if !keep {
		c.rw.Close()
	}
}

// expire closes c if it is idle; the timer may have fired while c was taken.
func (p *pool) expire(c *conn) {
	p.mu.Lock()
	found := p.removeLocked(c)
	p.mu.Unlock()
	if found {
		c.rw.Close()
	}
}

func (p *pool) removeLocked(c *conn) bool {
	list := p.idle[c.key]
	for i, other := range list {
		if other != c {
			continue
		}
		list[i] = list[len(list)-1]
		list[len(list)-1] = nil
		if list = list[:len(list)-1]; len(list) == 0 {
			delete(p.idle, c.key)
		} else {
			p.idle[c.key] = list
		}
		p.count--
		if c.timer != nil {
			c.timer.Stop()
		}
		return true
	}
	return false
}

func (p *pool) closeSession(session string) {
	p.end(func(k poolKey) bool { return k.session == session })
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end(func(poolKey) bool { return true })
}

func (p *pool) end(match func(poolKey) bool) {
	var gone []*conn
	p.mu.Lock()
	maps.DeleteFunc(p.resume, func(k poolKey, _ tls.ClientSessionCache) bool { return match(k) })
	for k, list := range p.idle {
		if match(k) {
			gone = append(gone, list...)
		}
	}
	for _, c := range gone {
		p.removeLocked(c)
	}
	for c := range p.busy {
		if match(c.key) {
			c.pending = true
		}
	}
	p.mu.Unlock()
	for _, c := range gone {
		c.rw.Close()
	}
}
