package sshexec

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	idleTimeout    = time.Minute
	lifeTimeout    = 10 * time.Minute // then host and key are proved again
	reopenTimeout  = 3 * time.Second  // a kept connection that is slower is replaced
	maxIdlePerKey  = 4
	maxIdleOverall = 64
)

// pool keeps connections for later actions of the same session, place and key.
// A connection serves one action at a time, so that what ends one action by
// closing its connection ends no other.
type pool struct {
	mu     sync.Mutex
	idle   map[string][]*kept
	count  int // over idle
	busy   map[*kept]struct{}
	closed bool
}

// kept is a connection that may outlive the action it was made for.
type kept struct {
	*link
	key     string // what an action must have in common with the one it was made for; empty: nothing has
	session string
	born    time.Time
	ended   context.Context // done once the connection has ended
	silent  context.Context // done, with its cause, when it was given up as dead
	timer   *time.Timer
	doomed  bool // busy, and to be closed afterwards
}

func newPool() *pool {
	return &pool{idle: make(map[string][]*kept), busy: make(map[*kept]struct{})}
}

// keyOf is everything that must be equal for two actions to share a connection.
// Whether the host still takes the key is asked anew by each new connection only.
func keyOf(t Target, s ssh.Signer) string {
	if t.Session == "" || s == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q\n", t.Session)
	last := Hop{Address: t.Address, User: t.User, HostKeys: t.HostKeys, HostCAs: t.HostCAs, HostNames: t.HostNames,
		Revoked: t.Revoked, Private: t.Private, Signer: s}
	for _, h := range append(slices.Clone(t.Via), last) {
		if h.Signer == nil {
			return ""
		}
		fmt.Fprintf(&b, "%q %q %q %q %q %q %v %q\n", h.Address, h.User, h.HostKeys, h.HostCAs, h.HostNames, h.Revoked, h.Private,
			h.Signer.PublicKey().Marshal())
	}
	return b.String()
}

// session opens a session on a kept connection or on a new one. On a kept one
// that fails before the host has confirmed the session nothing of the action
// was sent, so a new connection is made in its stead.
func (e *Executor) session(ctx context.Context, t Target, s ssh.Signer) (*kept, ssh.Channel, <-chan *ssh.Request, error) {
	key := keyOf(t, s)
	if l := e.kept.take(key); l != nil {
		ch, reqs, err := l.open(ctx, min(t.HandshakeTimeout, reopenTimeout))
		if err == nil {
			return l, ch, reqs, nil
		}
		e.kept.give(l, false)
		if ctx.Err() != nil {
			return nil, nil, nil, err
		}
		e.kept.end(func(other *kept) bool { return other.key == key }) // they are no better
	}
	l, err := e.connect(ctx, t, s)
	if err != nil {
		return nil, nil, nil, err
	}
	k := e.kept.adopt(l, key, t)
	ch, reqs, err := k.open(ctx, t.HandshakeTimeout)
	if err != nil {
		e.kept.give(k, false)
		return nil, nil, nil, err
	}
	return k, ch, reqs, nil
}

// open opens a session on the connection. No command was sent when it fails.
func (k *kept) open(ctx context.Context, limit time.Duration) (ssh.Channel, <-chan *ssh.Request, error) {
	octx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the host opened no session within %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	stop := context.AfterFunc(octx, func() { k.Close() })
	defer stop()
	ch, reqs, err := k.OpenChannel("session", nil)
	if err != nil {
		return nil, nil, refused(octx, fmt.Errorf("opening a session: %w", err))
	}
	if !stop() { // octx has ended, and the connection with it
		go ssh.DiscardRequests(reqs)
		return nil, nil, &Error{Code: CodeUpstream, Cause: context.Cause(octx)}
	}
	return ch, reqs, nil
}

// adopt makes a new connection known, so that the end of its session reaches
// it, and watches it for as long as it lives.
func (p *pool) adopt(l *link, key string, t Target) *kept {
	k := &kept{link: l, key: key, session: t.Session, born: time.Now()}
	var end context.CancelFunc
	var abandon context.CancelCauseFunc
	k.ended, end = context.WithCancel(context.Background())
	k.silent, abandon = context.WithCancelCause(context.Background())
	go func() {
		l.Wait()
		end()
	}()
	go l.watchSilence(k.ended, t.Keepalive, func(cause error) {
		abandon(cause)
		l.Close()
	})
	p.mu.Lock()
	p.busy[k] = struct{}{}
	p.mu.Unlock()
	return k
}

// take returns a kept connection for key, or nil.
func (p *pool) take(key string) *kept {
	for {
		k := p.pop(key)
		if k == nil || k.ended.Err() == nil && time.Since(k.born) < lifeTimeout {
			return k
		}
		p.give(k, false)
	}
}

func (p *pool) pop(key string) *kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[key]
	if len(list) == 0 {
		return nil
	}
	k := list[len(list)-1] // the one used last is the likeliest to be alive
	p.removeLocked(k)
	p.busy[k] = struct{}{}
	return k
}

// give ends the use of k: it is kept for another action or closed.
func (p *pool) give(k *kept, clean bool) {
	p.mu.Lock()
	delete(p.busy, k)
	keep := clean && k.key != "" && !k.doomed && !k.outer.muted.Load() && !p.closed && p.count < maxIdleOverall && len(p.idle[k.key]) < maxIdlePerKey
	if keep {
		p.idle[k.key] = append(p.idle[k.key], k)
		p.count++
		if k.timer == nil {
			k.timer = time.AfterFunc(idleTimeout, func() { p.expire(k) })
		} else {
			k.timer.Reset(idleTimeout)
		}
	}
	p.mu.Unlock()
	if !keep {
		k.Close()
	}
}

// expire closes k if it is idle; the timer may have fired while k was taken.
func (p *pool) expire(k *kept) {
	p.mu.Lock()
	found := p.removeLocked(k)
	p.mu.Unlock()
	if found {
		k.Close()
	}
}

func (p *pool) removeLocked(k *kept) bool {
	list := p.idle[k.key]
	for i, other := range list {
		if other != k {
			continue
		}
		list[i] = list[len(list)-1]
		list[len(list)-1] = nil
		if list = list[:len(list)-1]; len(list) == 0 {
			delete(p.idle, k.key)
		} else {
			p.idle[k.key] = list
		}
		p.count--
		k.timer.Stop()
		return true
	}
	return false
}

// CloseSession closes what is kept for a session. A connection in use is closed
// when its action has ended.
func (e *Executor) CloseSession(session string) {
	e.kept.end(func(k *kept) bool { return k.session == session })
}

// CloseKept does the same for all sessions.
func (e *Executor) CloseKept() { e.kept.end(func(*kept) bool { return true }) }

// Close does the same for good: no connection is kept afterwards.
func (e *Executor) Close() {
	e.kept.mu.Lock()
	e.kept.closed = true
	e.kept.mu.Unlock()
	e.CloseKept()
}

func (p *pool) end(match func(*kept) bool) {
	var gone []*kept
	p.mu.Lock()
	for _, list := range p.idle {
		for _, k := range list {
			if match(k) {
				gone = append(gone, k)
			}
		}
	}
	for _, k := range gone {
		p.removeLocked(k)
	}
	for k := range p.busy {
		if match(k) {
			k.doomed = true
		}
	}
	p.mu.Unlock()
	for _, k := range gone {
		k.Close()
	}
}
