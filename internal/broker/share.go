package broker

import (
	"container/list"
	"sync"
	"syscall"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// What one process, and all of them together, may hold of the broker. Every
// caller is of one account, and a process can fork: the bounds of one process
// keep a careless one from harming the others, the bounds of all keep the
// broker alive, and what is kept for the installed yett lets the person in
// whatever the others do.
const (
	maxChannels    = 8192
	channelsOfOne  = 64
	channelsOfYett = 64 // of the installed yett, beside the others
	// heldOfOne bounds the bytes of requests without an answer and of answers
	// that wait for their reader; heldOfAll bounds them for all processes.
	heldOfOne = 32 << 20
	heldOfAll = 256 << 20
	// heldAlways is what each process may hold though others use up heldOfAll.
	heldAlways = 64 << 10
	// deniedInASecond bounds the operations of one process that are denied, and
	// refusedInASecond its refusals that become rows: each is a row on disk.
	deniedInASecond  = 100
	refusedInASecond = 200
	// descriptorsOfOne is what a channel takes at most: socket, shim, agent.
	descriptorsOfOne = 3
	spareDescriptors = 512
)

// shares counts what processes hold.
type shares struct {
	mu      sync.Mutex
	byOwner map[string]*share
	others  room
	yett    room
	held    int
}

// room has the channels of one kind of caller.
type room struct {
	size      int
	list.List // of *channel, the oldest first
}

// share is what one process holds. It lives as long as a channel of it.
type share struct {
	all             *shares
	owner           string
	denied, refused refusals

	channels, held int // under all.mu, as is
	heard          bucket
}

func newShares() *shares {
	return &shares{byOwner: map[string]*share{}, others: room{size: channelsFor(descriptorLimit())}, yett: room{size: channelsOfYett}}
}

// channelsFor is how many channels there may be with so many descriptors.
func channelsFor(descriptors uint64) int {
	room := max(int64(min(descriptors, 1<<30))-spareDescriptors, 0)/descriptorsOfOne - channelsOfYett
	return int(min(max(room, channelsOfOne), maxChannels))
}

func descriptorLimit() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return uint64(l.Cur)
}

// enter counts a new channel. Where there is no room it returns false; where a
// channel has to make room, that one, which the caller closes: the oldest of
// those that hold nothing that a person gave or is asked for. Channels of the
// installed yett have a room of their own.
func (a *shares) enter(ch *channel, owner string, yett bool) (displaced *channel, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byOwner[owner]
	if s == nil {
		s = &share{all: a, owner: owner}
	}
	if s.channels >= channelsOfOne {
		return nil, false
	}
	r := &a.others
	if yett {
		r = &a.yett
	}
	if r.Len() >= r.size {
		if displaced = a.displaceLocked(r); displaced == nil {
			return nil, false
		}
	}
	a.byOwner[owner] = s
	s.channels++
	ch.share, ch.room, ch.arrival = s, r, r.PushBack(ch)
	return displaced, true
}

func (a *shares) displaceLocked(r *room) *channel {
	for e := r.Front(); e != nil; e = e.Next() {
		if ch := e.Value.(*channel); !ch.matters() {
			a.removeLocked(ch)
			return ch
		}
	}
	return nil
}

// leave gives the channel's place back.
func (a *shares) leave(ch *channel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removeLocked(ch)
}

func (a *shares) removeLocked(ch *channel) {
	if ch.arrival == nil {
		return
	}
	ch.room.Remove(ch.arrival)
	ch.arrival = nil
	if ch.share.channels--; ch.share.channels == 0 {
		delete(a.byOwner, ch.share.owner)
	}
}

// matters reports whether the channel holds what a person gave or is asked for,
// or work that was begun.
func (ch *channel) matters() bool {
	s := ch.id.Session()
	return len(ch.slot) > 0 || s != nil && s.State() == session.Pending || ch.trusted()
}

// hold counts n bytes until release. It reports false where they are too many.
func (s *share) hold(n int) bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.held+n > heldOfOne || s.all.held+n > heldOfAll && s.held+n > heldAlways {
		return false
	}
	s.held += n
	s.all.held += n
	return true
}

// awaitRoom holds n bytes for the channel once there is room for them. The
// reader waits: what more is sent stays in the sender's own socket.
func (ch *channel) awaitRoom(n int) bool {
	if ch.share.hold(n) {
		return true
	}
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	limit := time.NewTimer(writeTime)
	defer limit.Stop()
	for {
		select {
		case <-again.C:
			if ch.share.hold(n) {
				return true
			}
		case <-limit.C:
			return false
		case <-ch.closed:
			return false
		}
	}
}

func (s *share) release(n int) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.held -= n
	s.all.held -= n
}

// cost is what a request holds until it is answered: its own bytes, decoded and
// not, and those of its answer.
func cost(method string, frame int) int {
	switch method {
	case wire.MethodOperationBody, wire.MethodActivityList, wire.MethodSessionList, wire.MethodApprovalList, wire.MethodSecretList:
		return 2*frame + wire.MaxFrame
	}
	return 2*frame + 4<<10
}

// boundedAction is requestAction, within what one process may be denied in a
// second: each denied operation is a row.
func (ch *channel) boundedAction(s *session.Session, m wire.ActionRequest) (any, *wire.Error) {
	now := ch.b.Clock.SinceBoot()
	if ch.share.denied.spent(now, deniedInASecond) {
		return nil, wire.Errorf(wire.CodeBusy, "Too many actions of this process were denied at once.")
	}
	result, fail := ch.requestAction(s, m)
	if r, ok := result.(wire.OperationResult); ok && r.State == string(action.Denied) {
		ch.share.denied.allow(now, deniedInASecond)
	}
	return result, fail
}

// refusals limits how many of something happen in a second, so that a flooder
// cannot fill the disk with the rows about it.
type refusals struct {
	mu     sync.Mutex
	second time.Duration
	count  int
}

// allow counts one more, and reports whether it is within the limit.
func (r *refusals) allow(now time.Duration, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := now.Truncate(time.Second); s != r.second {
		r.second, r.count = s, 0
	}
	r.count++
	return r.count <= limit
}

// spent reports whether there is no room for one more.
func (r *refusals) spent(now time.Duration, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.second == now.Truncate(time.Second) && r.count >= limit
}
