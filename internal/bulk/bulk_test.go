package bulk

import (
	"testing"
	"time"
)

// H18 and its siblings: large streams together keep to the rate while another
// session acts, whoever brings the bytes, and to none while theirs acts alone.
func TestH18_LargeStreamsTogetherKeepToTheRate(t *testing.T) {
	const piece = 32 << 10
	now := time.Unix(1_800_000_000, 0)
	// bring has each session bring pieces in turn for a second, and returns the
	// bytes that came.
	bring := func(p *pace, sessions ...string) (bytes int64) {
		free := map[string]time.Time{}
		for end := now.Add(time.Second); now.Before(end); now = now.Add(100 * time.Microsecond) {
			for _, s := range sessions {
				if !now.Before(free[s]) {
					free[s] = now.Add(p.due(s, piece, now))
					bytes += piece
				}
			}
		}
		return bytes
	}
	var alone pace
	alone.acts("a", now)
	alone.acts("a", now)
	if got := bring(&alone, "a"); got != 10_000*piece {
		t.Errorf("a session that acts alone was slowed down to %d bytes a second", got)
	}
	var p pace
	p.acts("b", now)
	p.acts("a", now)
	p.acts("a", now)
	if got := bring(&p, "a", "b", "c"); got < burst || got > burst+Rate+3*piece {
		t.Errorf("in the first second three streams brought %d bytes", got)
	}
	if got := bring(&p, "a", "b", "c"); got < Rate-3*piece || got > Rate+3*piece {
		t.Errorf("in the second one they brought %d bytes", got)
	}
	now = now.Add(recent)
	if wait := p.due("a", piece, now); wait > 0 {
		t.Errorf("the others have not acted for long, and a stream waits for %v", wait)
	}
}

func TestShortStreamsDoNotWait(t *testing.T) {
	Acts("another")
	shared.mu.Lock()
	shared.next = time.Now().Add(time.Hour)
	shared.mu.Unlock()
	defer func() { shared = pace{} }()
	s := Stream{Session: "one"}
	began := time.Now()
	for range short >> 10 {
		s.Came(1 << 10)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
