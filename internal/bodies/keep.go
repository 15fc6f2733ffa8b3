package bodies

import (
	"container/list"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"
)

// entry is one file, or one body that is not on the disk yet. It goes as a whole.
type entry struct {
	file    string // its name; empty: it is not on the disk
	session string
	names   []Name
	size    int64 // on disk
	at      time.Time
	byAge   *list.Element // in index.byAge
	ofOwner *list.Element // in its owner's list
}

// place is where a body lies.
type place struct {
	*entry
	part section
}

// owner is the session of some bodies.
type owner struct {
	size    int64
	entries *list.List // oldest first
}

// index knows what is kept without looking at the disk.
type index struct {
	places map[Name]place
	byAge  *list.List // entries, oldest first
	owners map[string]*owner
	total  int64
}

func newIndex() index {
	return index{places: map[Name]place{}, byAge: list.New(), owners: map[string]*owner{}}
}

// add makes an entry known whose bodies lie at parts. It replaces older bodies of
// the same names.
func (x *index) add(e *entry, parts []section) {
	for i, name := range e.names {
		old, there := x.places[name]
		x.places[name] = place{e, parts[i]}
		if there && !x.holds(old.entry) {
			x.remove(old.entry)
		}
	}
	o := x.owners[e.session]
	if o == nil {
		o = &owner{entries: list.New()}
		x.owners[e.session] = o
	}
	e.byAge, e.ofOwner = x.byAge.PushBack(e), o.entries.PushBack(e)
	o.size += e.size
	x.total += e.size
}

// holds reports whether an entry has a body that no other has replaced.
func (x *index) holds(e *entry) bool {
	return slices.ContainsFunc(e.names, func(n Name) bool { return x.places[n].entry == e })
}

func (x *index) remove(e *entry) {
	for _, name := range e.names {
		if x.places[name].entry == e {
			delete(x.places, name)
		}
	}
	o := x.owners[e.session]
	x.byAge.Remove(e.byAge)
	o.entries.Remove(e.ofOwner)
	o.size -= e.size
	x.total -= e.size
	if o.entries.Len() == 0 {
		delete(x.owners, e.session)
	}
}

// largest is the oldest entry of the session that keeps most.
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
	type file struct {
		*entry
		parts []section
	}
	var found []file
	for {
		some, err := dir.ReadDir(1024)
		for _, d := range some {
			if !d.Type().IsRegular() {
				continue
			}
			info, err := d.Info()
			if err != nil {
				continue // it went meanwhile
			}
			names, parts, torn := s.found(d.Name(), info.Size())
			if torn {
				if err := s.root.Remove(d.Name()); err != nil {
					return err
				}
				continue
			}
			if len(names) > 0 {
				e := &entry{file: d.Name(), session: names[0].Session, names: names, size: onDisk(info.Size()), at: info.ModTime()}
				found = append(found, file{e, parts})
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(found, func(a, b file) int { return a.at.Compare(b.at) })
	for _, f := range found {
		s.index.add(f.entry, f.parts)
	}
	return nil
}

// added makes a body known that has a file of its own, and makes room for it.
func (s *Store) added(name Name, size int64, at time.Time) {
	s.mu.Lock()
	s.dropFreshLocked(name) // an older one of this name
	gone := s.addLocked(&entry{file: name.file(), names: []Name{name}, size: size, at: at})
	s.mu.Unlock()
	s.unlink(gone)
}

// addLocked adds an entry of one body and returns the files that must go for it.
func (s *Store) addLocked(e *entry) (gone []string) {
	e.session, e.size = e.names[0].Session, onDisk(e.size)
	s.index.add(e, []section{{}})
	return s.makeRoomLocked(e)
}

// makeRoomLocked takes bodies out of the index until the rest lies well within
// the bounds. The newest stays, however large it is.
func (s *Store) makeRoomLocked(newest *entry) (gone []string) {
	x := &s.index
	if x.total <= s.MaxTotal && len(x.places) <= s.MaxFiles {
		return nil
	}
	for x.total > s.MaxTotal-s.MaxTotal/20 || len(x.places) > s.MaxFiles-s.MaxFiles/20 {
		e := x.largest()
		if e == newest {
			if e = x.byAge.Front().Value.(*entry); e == newest {
				break
			}
		}
		gone = append(gone, s.removeLocked(e)...)
	}
	return gone
}

// Expire removes what is older than MaxAge, and tries again to write what could
// not be written. It is called now and then.
func (s *Store) Expire(now time.Time) {
	s.mu.Lock()
	var gone []string
	for e := s.index.byAge.Front(); e != nil; e = s.index.byAge.Front() {
		if oldest := e.Value.(*entry); now.Sub(oldest.at) > s.MaxAge {
			gone = append(gone, s.removeLocked(oldest)...)
			continue
		}
		break
	}
	s.tryAgainLocked()
	s.mu.Unlock()
	s.unlink(gone)
}

// removeLocked forgets the bodies of an entry, and returns its file, if it has one.
func (s *Store) removeLocked(e *entry) (gone []string) {
	s.index.remove(e)
	if e.file != "" {
		return []string{e.file}
	}
	s.dropFreshLocked(e.names[0])
	return nil
}

func (s *Store) unlink(files []string) {
	for _, file := range files {
		if err := s.root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // the next start finds it and tries again
		}
	}
}

// has says where the body lies if it is kept and young enough, and returns it
// where it is not on the disk yet.
func (s *Store) has(name Name, now time.Time) (at place, sealed []byte, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.fresh.sealed[name]; w != nil {
		sealed = w.whole
	}
	at, kept = s.index.places[name]
	return at, sealed, kept && now.Sub(at.at) <= s.MaxAge
}

// StreamsOf lists which bodies of an action are kept.
func (s *Store) StreamsOf(row int64, session string) []string {
	kept := []string{}
	for _, stream := range Streams() {
		if _, _, ok := s.has(Name{row, session, stream}, time.Now()); ok {
			kept = append(kept, stream)
		}
	}
	return kept
}

// Kept says how many bodies there are and what they take on disk.
func (s *Store) Kept() (bodies int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.index.places), s.index.total
}
