package bodies

import (
	"container/list"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// entry is one body that is kept.
type entry struct {
	name    Name
	size    int64 // on disk
	at      time.Time
	byAge   *list.Element // in index.byAge
	ofOwner *list.Element // in its owner's list
}

// owner is the session of some bodies.
type owner struct {
	size    int64
	entries *list.List // oldest first
}

// index knows what is kept without looking at the disk.
type index struct {
	entries map[Name]*entry
	byAge   *list.List // oldest first
	owners  map[string]*owner
	total   int64
}

func newIndex() index {
	return index{entries: map[Name]*entry{}, byAge: list.New(), owners: map[string]*owner{}}
}

func (x *index) add(e *entry) {
	x.remove(e.name)
	o := x.owners[e.name.Session]
	if o == nil {
		o = &owner{entries: list.New()}
		x.owners[e.name.Session] = o
	}
	e.byAge, e.ofOwner = x.byAge.PushBack(e), o.entries.PushBack(e)
	x.entries[e.name] = e
	o.size += e.size
	x.total += e.size
}

func (x *index) remove(name Name) {
	e := x.entries[name]
	if e == nil {
		return
	}
	delete(x.entries, name)
	o := x.owners[name.Session]
	x.byAge.Remove(e.byAge)
	o.entries.Remove(e.ofOwner)
	o.size -= e.size
	x.total -= e.size
	if o.entries.Len() == 0 {
		delete(x.owners, name.Session)
	}
}

// largest is the oldest body of the session that keeps most.
func (x *index) largest() *entry {
	var most *owner
	for _, o := range x.owners {
		if most == nil || o.size > most.size {
			most = o
		}
	}
	return most.entries.Front().Value.(*entry)
}

// onDisk is what a file takes there, about.
func onDisk(size int64) int64 { const block = 4 << 10; return (size + block - 1) / block * block }

// scan fills the index from the directory and removes what a crash left.
func (s *Store) scan() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	var found []*entry
	for {
		some, err := dir.ReadDir(1024)
		for _, d := range some {
			whole, part := strings.CutSuffix(d.Name(), unfinished)
			name, ours := parseName(whole)
			if !ours || !d.Type().IsRegular() {
				continue
			}
			info, err := d.Info()
			if err != nil {
				continue // it went meanwhile
			}
			if _, _, ok := layout(info.Size()); part || !ok {
				if err := s.root.Remove(d.Name()); err != nil {
					return err
				}
				continue
			}
			found = append(found, &entry{name: name, size: onDisk(info.Size()), at: info.ModTime()})
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return a.at.Compare(b.at) })
	for _, e := range found {
		s.index.add(e)
	}
	return nil
}

// added makes a finished body known, and makes room for it.
func (s *Store) added(name Name, size int64, at time.Time) {
	s.mu.Lock()
	s.dropFreshLocked(name) // an older one of this name
	gone := s.addLocked(name, size, at)
	s.mu.Unlock()
	s.unlink(gone)
}

// addLocked returns what must go for it.
func (s *Store) addLocked(name Name, size int64, at time.Time) (gone []Name) {
	e := &entry{name: name, size: onDisk(size), at: at}
	s.index.add(e)
	return s.makeRoomLocked(e)
}

// makeRoomLocked takes bodies out of the index until the rest lies well within
// the bounds. The newest stays, however large it is.
func (s *Store) makeRoomLocked(newest *entry) (gone []Name) {
	x := &s.index
	if x.total <= s.MaxTotal && len(x.entries) <= s.MaxFiles {
		return nil
	}
	for x.total > s.MaxTotal-s.MaxTotal/20 || len(x.entries) > s.MaxFiles-s.MaxFiles/20 {
		e := x.largest()
		if e == newest {
			if e = x.byAge.Front().Value.(*entry); e == newest {
				break
			}
		}
		s.removeLocked(e.name)
		gone = append(gone, e.name)
	}
	return gone
}

// Expire removes what is older than MaxAge, and tries again to write what could
// not be written. It is called now and then.
func (s *Store) Expire(now time.Time) {
	s.mu.Lock()
	var gone []Name
	for e := s.index.byAge.Front(); e != nil; e = s.index.byAge.Front() {
		if oldest := e.Value.(*entry); now.Sub(oldest.at) > s.MaxAge {
			s.removeLocked(oldest.name)
			gone = append(gone, oldest.name)
			continue
		}
		break
	}
	s.tryAgainLocked()
	s.mu.Unlock()
	s.unlink(gone)
}

func (s *Store) removeLocked(name Name) {
	s.index.remove(name)
	s.dropFreshLocked(name)
}

func (s *Store) unlink(names []Name) {
	for _, n := range names {
		if err := s.root.Remove(n.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // the next start finds it and tries again
		}
	}
}

// has reports whether the body is kept and young enough, and returns it where
// it is not on the disk yet.
func (s *Store) has(name Name, now time.Time) (sealed []byte, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index.entries[name]
	return s.fresh.sealed[name], e != nil && now.Sub(e.at) <= s.MaxAge
}

// StreamsOf lists which bodies of an action are kept.
func (s *Store) StreamsOf(row int64, session string) []string {
	kept := []string{}
	for _, stream := range Streams() {
		if _, ok := s.has(Name{row, session, stream}, time.Now()); ok {
			kept = append(kept, stream)
		}
	}
	return kept
}

// Kept says how many bodies there are and what they take on disk.
func (s *Store) Kept() (bodies int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.index.entries), s.index.total
}
