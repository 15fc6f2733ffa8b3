package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/session"
)

func idleChannel() *channel {
	ch := &channel{b: &Broker{Config: Config{Clock: session.SystemClock{}}}, id: session.NewChannel(), slot: make(chan struct{}, 1)}
	ch.operator = newOperator(ch.b, ch)
	return ch
}

// One process gets its share, and what it gives back it may take again.
func TestAProcessHasAShareOfChannels(t *testing.T) {
	a := newShares()
	var held []*channel
	for range channelsOfOne {
		ch := idleChannel()
		if _, ok := a.enter(ch, "one", false); !ok {
			t.Fatal("kept out of its own share")
		}
		held = append(held, ch)
	}
	if _, ok := a.enter(idleChannel(), "one", false); ok {
		t.Error("more than its share")
	}
	if displaced, ok := a.enter(idleChannel(), "other", false); !ok || displaced != nil {
		t.Error("another process pays for it")
	}
	a.leave(held[0])
	a.leave(held[0]) // twice is once
	if _, ok := a.enter(idleChannel(), "one", false); !ok {
		t.Error("what was given back is lost")
	}
}

// Where every place is taken, the oldest that holds nothing makes room. What a
// person gave, and what is under way, stays; the person's yett has a room of
// its own.
func TestAFullBrokerMakesRoom(t *testing.T) {
	a := newShares()
	a.others.size, a.yett.size = 4, 2
	enter := func(owner string, yett bool) (ch, displaced *channel, ok bool) {
		ch = idleChannel()
		displaced, ok = a.enter(ch, owner, yett)
		return ch, displaced, ok
	}
	busy, _, _ := enter("busy", false)
	busy.slot <- struct{}{}
	oldest, _, _ := enter("p1", false)
	for n := range 2 {
		enter(fmt.Sprint("q", n), false)
	}
	if _, displaced, ok := enter("newcomer", false); !ok || displaced != oldest {
		t.Error("the oldest idle channel did not make room for the newcomer")
	}
	for n := range 20 {
		if _, displaced, ok := enter(fmt.Sprint("crowd", n), false); !ok || displaced == busy {
			t.Fatal("a crowd pushed out what is under way, or was kept out")
		}
	}
	if _, displaced, ok := enter("person", true); !ok || displaced != nil {
		t.Error("the person's yett has no place")
	}
	for e := a.others.Front(); e != nil; e = e.Next() {
		if ch := e.Value.(*channel); ch != busy {
			ch.slot <- struct{}{}
		}
	}
	if _, _, ok := enter("late", false); ok {
		t.Error("nobody could make room")
	}
	if _, _, ok := enter("person too", true); !ok {
		t.Error("the person is kept out")
	}
	if a.others.Len() != 4 || a.yett.Len() != 2 {
		t.Errorf("%d and %d channels", a.others.Len(), a.yett.Len())
	}
}

// The places follow from the descriptors that there are.
func TestChannelsForDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 64, 900: 65, 1024: 106, 20_000: 6432, 1 << 20: maxChannels, 1<<64 - 1: maxChannels} {
		if got := channelsFor(descriptors); got != want {
			t.Errorf("%d descriptors: %d channels, want %d", descriptors, got, want)
		}
	}
}

// Bytes under way are bounded for one process and for all; a little is always
// there for each.
func TestBytesUnderWayAreBounded(t *testing.T) {
	a := newShares()
	one := &share{all: a}
	if !one.hold(heldOfOne) || one.hold(1) {
		t.Error("one process may hold more, or less")
	}
	for a.held+heldOfOne <= heldOfAll {
		if !(&share{all: a}).hold(heldOfOne) {
			t.Fatal("there is room")
		}
	}
	late := &share{all: a}
	if late.hold(heldAlways + 1) {
		t.Error("all together hold more")
	}
	if !late.hold(heldAlways) || late.hold(1) {
		t.Error("a newcomer is kept out, or has no bound")
	}
	one.release(heldOfOne)
	late.release(heldAlways)
	if one.held != 0 || late.held != 0 || !late.hold(1<<20) {
		t.Error("what was given back is lost")
	}
}

// A pace lets so many come at once and then one each so often; silence fills it
// again, and no further.
func TestPace(t *testing.T) {
	var k bucket
	p := pace{each: time.Second, ahead: 3}
	now := time.Hour
	for n := range 3 {
		if wait := k.take(p, now); wait != 0 {
			t.Fatalf("number %d waits %v", n, wait)
		}
	}
	for n := 1; n < 4; n++ {
		if wait := k.take(p, now); wait != time.Duration(n)*time.Second {
			t.Errorf("number %d waits %v", 3+n, wait)
		}
	}
	now += 24 * time.Hour
	for range 3 {
		if k.take(p, now) != 0 {
			t.Error("silence did not fill it")
		}
	}
	if k.take(p, now) == 0 {
		t.Error("silence filled it beyond its measure")
	}
}

// What comes on a channel that was given something is not held against the next
// channel of its process.
func TestABusyAgentGetsAnotherChannel(t *testing.T) {
	ch, s, clock := cardBroker(t)
	ch.share = &share{all: &shares{}}
	s.Grant([]string{"c"}, time.Now().Add(time.Hour), false, false)
	for range 10 * messagePace.ahead {
		ch.keepPace()
	}
	if wait := ch.share.tooFast(clock.SinceBoot()); wait != 0 {
		t.Errorf("the next channel waits %v", wait)
	}
}

// A process that connects without end is turned away, and nobody else is.
func TestDoors(t *testing.T) {
	var d doors
	let := 0
	for range 10 * connectPace.ahead {
		if _, ok := d.knock(1, time.Hour); ok {
			let++
		}
	}
	if most := connectPace.ahead + int(doorTime/connectPace.each); let != most {
		t.Errorf("%d connections were let in at once, want %d", let, most)
	}
	if wait, ok := d.knock(2, time.Hour); !ok || wait != 0 {
		t.Error("another process waits for it")
	}
	for pid := range 10 * keptDoors {
		d.knock(pid, time.Hour)
	}
	if n := len(d.byPID) + len(d.older); n > 2*keptDoors {
		t.Errorf("%d processes are remembered", n)
	}
}
