// Package bulk keeps large answers, their heads included, from slowing down short
// ones. It trusts its callers, guards nothing, and does no I/O.
//
// An intent is on the disk before its action begins, and a disk that is asked
// whether one thing is written writes everything that it was given before. And
// while streams inflate, decrypt, search and seal on every processor without a
// pause, Go looks at the network every 10 ms only. So while several sessions act,
// all large streams together bring no more than Rate, after a burst. A session
// that acts alone is not slowed down.
package bulk

import (
	"sync"
	"time"
)

const (
	// Rate is how many bytes a second large streams bring together while several
	// sessions act.
	Rate  = 16 << 20
	burst = 8 << 20
	// short is how many bytes of a stream do not count.
	short = 128 << 10
	// recent is how long after its last action a session counts as acting.
	recent = 10 * time.Second
)

// Stream is one stream of bytes. Only Session is set; it says whose it is. One
// goroutine uses a stream at a time.
type Stream struct {
	Session string
	seen    int64
}

// Came counts n more bytes, and waits until a large stream may go on.
func (s *Stream) Came(n int) {
	if s.seen += int64(n); s.seen > short {
		time.Sleep(shared.due(s.Session, n, time.Now()))
	}
}

// Acts says that a session begins an action.
func Acts(session string) { shared.acts(session, time.Now()) }

// shared is the process's, as its processors and its disk are.
var shared pace

// pace is what large streams together may bring.
type pace struct {
	mu      sync.Mutex
	last    acting
	another acting    // the last one of another session than that of last
	next    time.Time // when all that was counted has its time
}

type acting struct {
	session string
	at      time.Time
}

func (p *pace) acts(session string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.session != session {
		p.another = p.last
	}
	p.last = acting{session, now}
}

// due counts n bytes of a session and returns how long they have to wait.
func (p *pace) due(session string, n int, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	other := p.last
	if other.session == session {
		other = p.another
	}
	if other.at.IsZero() || now.Sub(other.at) > recent {
		return 0
	}
	if earliest := now.Add(-burst * time.Second / Rate); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(time.Duration(n) * time.Second / Rate)
	return p.next.Sub(now)
}
