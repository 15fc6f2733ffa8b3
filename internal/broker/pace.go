package broker

import (
	"net"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/wire"
)

// How fast a process may take the broker's time while no person has given it
// anything: enough to list, ask and wait, too little to slow the others. What
// was granted, and a proof, lift it for their channel.
var (
	messagePace = pace{each: 5 * time.Millisecond, ahead: 400}
	connectPace = pace{each: 20 * time.Millisecond, ahead: 200}
)

// doorTime is the longest that a connection waits for its evidence.
const doorTime = 2 * time.Second

// keptDoors bounds the processes whose connections are counted by number.
const keptDoors = 4096

// pace is one thing each so often, and so many ahead of time.
type pace struct {
	each  time.Duration
	ahead int
}

// bucket counts against a pace. Its zero value is full.
type bucket struct {
	next time.Duration // when the next one is due, since boot
}

// take counts one more and returns how long it has to wait.
func (k *bucket) take(p pace, now time.Duration) time.Duration {
	k.next = max(k.next, now-time.Duration(p.ahead)*p.each) + p.each
	return max(k.next-now, 0)
}

// doors counts the connections of each process before evidence of it is taken,
// which is what a connection costs most.
type doors struct {
	mu    sync.Mutex
	byPID map[int]*bucket
	older map[int]*bucket // those before; forgotten when byPID is full again
}

// knock counts a connection of the process pid and returns how long it has to
// wait for its evidence; ok is false where that is too long.
func (d *doors) knock(pid int, now time.Duration) (wait time.Duration, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.byPID[pid]
	if k == nil {
		if len(d.byPID) >= keptDoors || d.byPID == nil {
			d.byPID, d.older = map[int]*bucket{}, d.byPID
		}
		if k = d.older[pid]; k == nil {
			k = &bucket{}
		}
		d.byPID[pid] = k
	}
	was := *k
	if wait = k.take(connectPace, now); wait > doorTime {
		*k = was // what is turned away does not count
		return 0, false
	}
	return wait, true
}

// admit lets a process that connects again and again wait, and turns away one
// that does so without end: it answers without reading, and does not wait for
// the answer to be read.
func (b *Broker) admit(conn *net.UnixConn) {
	pid, err := peer.Number(conn)
	if err != nil { // the evidence says what is wrong
		b.running.Go(func() { b.serveChannel(conn) })
		return
	}
	wait, ok := b.doors.knock(pid, b.Clock.SinceBoot())
	if ok {
		b.running.Go(func() {
			select {
			case <-time.After(wait):
			case <-b.stop:
			}
			b.serveChannel(conn)
		})
		return
	}
	if out, err := (wire.Reply{Error: wire.Errorf(wire.CodeBusy, "This process connects too often.")}).Encode(); err == nil {
		conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		conn.Write(out)
	}
	conn.Close()
}

// keepPace waits until the channel's process may be heard again. The reader
// waits, so that what a flooder sends stays in its own socket. What comes on a
// channel that was given something counts for no other of the process.
func (ch *channel) keepPace() {
	if ch.trusted() {
		return
	}
	wait := ch.share.tooFast(ch.b.Clock.SinceBoot())
	if wait == 0 {
		return
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-limit.C:
	case <-ch.closed:
	}
}

func (s *share) tooFast(now time.Duration) time.Duration {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.heard.take(messagePace, now)
}

// trusted reports whether a person has given something on this channel: a proof
// or a grant.
func (ch *channel) trusted() bool {
	s := ch.id.Session()
	if s == nil {
		return ch.mayRead()
	}
	return s.HasGrant()
}
