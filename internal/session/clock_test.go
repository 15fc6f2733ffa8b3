package session

import (
	"sync"
	"testing"
	"time"
)

// testClock stands still until it is moved; wall clock and time since boot can
// move apart.
type testClock struct {
	mu   sync.Mutex
	wall time.Time
	boot time.Duration
}

func newTestClock() *testClock {
	return &testClock{wall: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), boot: time.Hour}
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *testClock) SinceBoot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.boot = c.wall.Add(d), c.boot+d
}

// jump sets the wall clock, as a person or a time server does.
func (c *testClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

func TestSystemClockGoesOn(t *testing.T) {
	var c Clock = SystemClock{}
	before, at := c.SinceBoot(), c.Now()
	time.Sleep(time.Millisecond)
	if c.SinceBoot()-before < time.Millisecond || c.Now().Sub(at) < time.Millisecond {
		t.Error("a clock of the system stands still")
	}
}
