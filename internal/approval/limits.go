package approval

import (
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// Limits of one caller, and of all of them together.
const (
	maxWaiting   = 100
	maxPerSecond = 20
	maxAllBytes  = 64 << 20 // of documents
)

// newIDLocked makes an id whose tag no other waiting card has.
func (q *Queue) newIDLocked() string {
	for tries := 0; ; tries++ {
		id := action.NewID("a_")
		tag := Tag(id)
		taken := slices.ContainsFunc(q.items, func(w *waiting) bool { return w.Card.Tag == tag })
		if !taken || tries == 1000 { // more cards than tags wait, or nearly so
			return id
		}
	}
}

// makeRoomLocked takes back newest cards of whoever holds the most memory until
// size more bytes fit. It reports false where that would be the caller itself.
func (q *Queue) makeRoomLocked(caller string, size int) bool {
	for q.bytes+size > q.most {
		held := map[string]int{caller: size}
		most := caller
		for _, w := range q.items {
			held[w.caller] += len(w.Document)
		}
		for _, w := range q.items { // by age, so that the choice is the same each time
			if held[w.caller] > held[most] {
				most = w.caller
			}
		}
		if most == caller {
			return false
		}
		for _, w := range slices.Backward(q.items) {
			if w.caller == most {
				q.settleLocked(w, Decision{Choice: ChoiceDeny, Code: "no_approver"})
				break
			}
		}
	}
	return true
}

// allowLocked lets a caller file maxWaiting cards at once and maxPerSecond on
// and on.
func (q *Queue) allowLocked(caller string, now time.Duration) bool {
	const full = maxWaiting * time.Second / maxPerSecond
	for c, free := range q.paid {
		if free <= now {
			delete(q.paid, c) // all of its allowance is back
		}
	}
	free := max(q.paid[caller], now) + time.Second/maxPerSecond
	if free > now+full {
		return false
	}
	q.paid[caller] = free
	return true
}
