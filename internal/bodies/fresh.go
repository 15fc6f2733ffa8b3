package bodies

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxFresh bounds the sealed bytes that wait for the disk.
	maxFresh = 8 << 20
	// freshTime is how long they wait: whoever answers is not to find the
	// processor busy with the files of those who were answered before, and what
	// comes meanwhile shares a file.
	freshTime = 100 * time.Millisecond
)

// fresh is short bodies that are sealed and not on the disk yet: making a file
// may wait for the file system's journal, and whoever answers does not wait for
// that. They are read from here meanwhile.
type fresh struct {
	changed *sync.Cond // over Store.mu
	sealed  map[Name]*waiting
	order   []*waiting // and some that have gone from sealed
	size    int
	trouble bool // the last write failed: whoever comes now writes itself, and learns why it cannot
	again   bool // the next try is due
	closing bool
	hurry   chan struct{} // closed with closing
	ended   chan struct{}
}

// waiting is one of them.
type waiting struct {
	name  Name
	whole []byte // as a file of its own would be
	at    time.Time
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
	w := &waiting{name, whole, at}
	f.sealed[name] = w
	f.order = append(f.order, w)
	f.size += len(whole)
	gone := s.addLocked(&entry{names: []Name{name}, size: int64(len(whole)), at: at})
	f.changed.Broadcast()
	s.mu.Unlock()
	s.unlink(gone)
	return true
}

// dropFreshLocked forgets what was not written yet.
func (s *Store) dropFreshLocked(name Name) {
	if w := s.fresh.sealed[name]; w != nil {
		s.fresh.size -= len(w.whole)
		delete(s.fresh.sealed, name)
	}
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

// writeOldestLocked writes the body that waits for longest, together with others
// of its session, with the lock let go meanwhile. It reports whether that was
// possible.
func (s *Store) writeOldestLocked() bool {
	f := &s.fresh
	together := s.togetherLocked()
	if len(together) == 0 {
		f.order = nil
		return true
	}
	first := together[0]
	file, whole, parts := first.name.file(), first.whole, []section{{}}
	s.mu.Unlock()
	if len(together) > 1 {
		file += packSuffix
		whole, parts = packed(together)
	}
	err := s.writeWhole(file, whole)
	s.mu.Lock()
	if f.trouble = err != nil; f.trouble {
		return false
	}
	e := &entry{file: file, session: first.name.Session, size: onDisk(int64(len(whole))), at: first.at}
	var at []section
	for i, w := range together {
		if f.sealed[w.name] == w { // else it was removed while it was written
			e.names, at = append(e.names, w.name), append(at, parts[i])
			s.dropFreshLocked(w.name)
		}
	}
	if len(e.names) == 0 {
		s.root.Remove(file)
	} else {
		s.index.add(e, at)
	}
	f.order = slices.DeleteFunc(f.order, func(w *waiting) bool { return f.sealed[w.name] != w })
	return true
}

// togetherLocked is what goes into one file: no more than a twentieth of what is
// kept, since the file goes as a whole.
func (s *Store) togetherLocked() (some []*waiting) {
	most, size := min(maxPack, s.MaxFiles/20), int64(0)
	for _, w := range s.fresh.order {
		if s.fresh.sealed[w.name] != w || len(some) > 0 && w.name.Session != some[0].name.Session {
			continue
		}
		size += int64(len(w.whole))
		if len(some) > 0 && (len(some) >= most || size > min(maxPackSize, s.MaxTotal/20)) {
			break
		}
		some = append(some, w)
	}
	return some
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
