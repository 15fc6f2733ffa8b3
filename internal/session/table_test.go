package session

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

func TestTheNonceOpensOneSession(t *testing.T) {
	c, other := NewChannel(), NewChannel()
	for _, n := range []string{"", other.Nonce, c.Nonce + "x", c.Nonce[1:], strings.ToLower(c.Nonce), c.ID} {
		if c.TakeNonce(n) {
			t.Errorf("nonce %q was taken", n)
		}
	}
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if c.TakeNonce(c.Nonce) {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("the nonce was taken %d times", won.Load())
	}
	c.GiveBack()
	if !c.TakeNonce(c.Nonce) || c.TakeNonce(c.Nonce) {
		t.Error("a nonce that was given back opens one session")
	}
	table := NewTable(newTestClock())
	s := table.Make(c, action.Caller{}, Active)
	if c.Session() != nil {
		t.Error("a session can be used before it is inserted")
	}
	table.Insert(c, s, c.ID)
	if c.Session() != s || s.ChannelID != c.ID {
		t.Error("the channel has not its session")
	}
	c.GiveBack()
	if c.TakeNonce(c.Nonce) {
		t.Error("a second session could be opened on one channel")
	}
	if !other.TakeNonce(other.Nonce) {
		t.Error("another channel's nonce is spent")
	}
}

// Ids cannot be guessed: at least 128 random bits, each different from all
// others, and no two alike in any place.
func TestIDsAreRandomAndDistinct(t *testing.T) {
	table, seen := NewTable(newTestClock()), map[string]bool{}
	byPlace := map[int]map[byte]int{}
	for range 2000 {
		c := NewChannel()
		s := table.Make(c, action.Caller{}, Active)
		for prefix, id := range map[string]string{"c_": c.ID, "n_": c.Nonce, "s_": s.ID} {
			rest, ok := strings.CutPrefix(id, prefix)
			if !ok || len(rest)*5 < 128 || seen[rest] {
				t.Fatalf("id %q", id)
			}
			seen[rest] = true
			for i := range len(rest) {
				if byPlace[i] == nil {
					byPlace[i] = map[byte]int{}
				}
				byPlace[i][rest[i]]++
			}
		}
	}
	for i, chars := range byPlace {
		if len(chars) != 32 {
			t.Errorf("place %d has %d different characters, want 32", i, len(chars))
		}
	}
}

func TestTheTableForgetsOnlyWhatEnded(t *testing.T) {
	table := NewTable(newTestClock())
	insert := func() *Session {
		c := NewChannel()
		s := table.Make(c, action.Caller{}, Active)
		table.Insert(c, s, c.ID)
		return s
	}
	oldest := insert()
	var alive []*Session
	for n := range 3 * keptEnded {
		s := insert()
		if n%100 == 0 {
			alive = append(alive, s)
			continue
		}
		s.End(Revoked)
		if _, ok := table.Get(s.ID); !ok {
			t.Fatal("a session that ended just now is forgotten")
		}
		if len(table.order) > 2*keptEnded+1 || len(table.byID) != len(table.order) {
			t.Fatalf("%d sessions in order, %d by id", len(table.order), len(table.byID))
		}
	}
	for _, s := range append(alive, oldest) {
		if got, ok := table.Get(s.ID); !ok || got != s {
			t.Fatal("a live session is forgotten")
		}
	}
	if n, _ := table.Live(); n != len(alive)+1 {
		t.Errorf("%d live sessions, want %d", n, len(alive)+1)
	}
	all := table.All()
	if all[0] != oldest || len(all) < keptEnded {
		t.Errorf("%d sessions, the first is not the oldest", len(all))
	}
	all[0] = nil
	if table.All()[0] != oldest {
		t.Error("a changed copy changed the table")
	}
	if _, ok := table.Get("s_unknown"); ok {
		t.Error("an unknown id is known")
	}
}

func TestTheTableStandsConcurrentUse(t *testing.T) {
	table := NewTable(newTestClock())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				c := NewChannel()
				s := table.Make(c, action.Caller{}, Pending)
				table.Insert(c, s, c.ID)
				s.Activate()
				table.All()
				table.Live()
				c.Session().End(ChannelClosed)
				if got, ok := table.Get(s.ID); !ok || got.Status().EndReason != ChannelClosed {
					t.Error("a session is lost")
				}
			}
		})
	}
	wg.Wait()
	if live, _ := table.Live(); len(table.All()) != 400 || live != 0 {
		t.Errorf("%d sessions, %d live", len(table.All()), live)
	}
}
