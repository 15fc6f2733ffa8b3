package bodies

import (
	"sync"
	"time"
)

const (
	// maxFresh bounds the sealed bytes that wait for the disk.
	maxFresh = 8 << 20
	// freshTime is how long they wait: whoever answers is not to find the
	// processor busy with the files of those who were answered before.
	freshTime = 20 * time.Millisecond
)

// fresh is short bodies that are sealed and not on the disk yet: making a file
// may wait for the file system's journal, and whoever answers does not wait for
// that. They are read from here meanwhile.
type fresh struct {
	changed *sync.Cond // over Store.mu
	sealed  map[Name][]byte
	order   []Name
	size    int
	trouble bool // the last write failed: whoever comes now writes itself, and learns why it cannot
	again   bool // the next try is due
	closing bool
	hurry   chan struct{} // closed with closing
	ended   chan struct{}
}

// later takes a short body to be written soon. It refuses where that may fail.
func (s *Store) later(name Name, whole []byte, at time.Time) bool {
	s.mu.Lock()
	f := &s.fresh
	if f.trouble || f.closing || f.size+len(whole) > maxFresh {
		s.mu.Unlock()
		return false
	}
	s.dropFreshLocked(name)
	f.sealed[name] = whole
	f.order = append(f.order, name)
	f.size += len(whole)
	gone := s.addLocked(name, int64(len(whole)), at)
	f.changed.Broadcast()
	s.mu.Unlock()
	s.unlink(gone)
	return true
}

// dropFreshLocked forgets what was not written yet.
func (s *Store) dropFreshLocked(name Name) {
	s.fresh.size -= len(s.fresh.sealed[name])
	delete(s.fresh.sealed, name)
}

// writeFresh writes what comes until the store is closed. What cannot be written
// stays, and is tried again when Expire says so.
func (s *Store) writeFresh() {
	f := &s.fresh
	defer close(f.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for !f.closing && (len(f.order) == 0 || f.trouble && !f.again) {
			f.changed.Wait()
		}
		if len(f.order) == 0 || f.closing && f.trouble {
			return
		}
		s.mu.Unlock()
		select {
		case <-time.After(freshTime):
		case <-f.hurry:
		}
		s.mu.Lock()
		f.again = false
		for len(f.order) > 0 && s.writeOldestLocked() {
		}
		f.changed.Broadcast()
	}
}

// writeOldestLocked writes the body that waits for longest, with the lock let go
// meanwhile, and reports whether that was possible.
func (s *Store) writeOldestLocked() bool {
	f := &s.fresh
	name := f.order[0]
	if whole, waits := f.sealed[name]; waits {
		s.mu.Unlock()
		err := s.writeShort(name, whole)
		s.mu.Lock()
		if f.trouble = err != nil; f.trouble {
			return false
		}
		s.dropFreshLocked(name)
		if s.index.entries[name] == nil { // removed while it was written
			s.root.Remove(name.file())
		}
	}
	f.order = f.order[1:]
	return true
}

// tryAgainLocked is for a disk that had no room.
func (s *Store) tryAgainLocked() {
	if s.fresh.trouble {
		s.fresh.again = true
		s.fresh.changed.Broadcast()
	}
}

// endFresh writes what waits and returns when that is done.
func (s *Store) endFresh() {
	s.mu.Lock()
	if !s.fresh.closing {
		s.fresh.closing = true
		close(s.fresh.hurry)
	}
	s.fresh.changed.Broadcast()
	s.mu.Unlock()
	<-s.fresh.ended
}
