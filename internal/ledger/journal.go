package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/yett-broker/yett/internal/durable"
)

// store is the journal's file: each step that can fail by itself, or be the
// last one before a crash.
type store interface {
	WriteAt(p []byte, off int64) (int, error)
	Sync() error
	Close() error
}

type journalFile struct{ *os.File }

func (f journalFile) Sync() error { return durable.Datasync(f.File) }

// journal writes groups of rows. One goroutine at a time uses it: whoever
// leads the group.
type journal struct {
	layout
	file store

	generation uint64 // of the segment in use
	current    int    // segment
	at         int64  // where the next group goes; beyond the segment before the first one
	last       [segments]int64
	failed     int64 // where a write began that failed, 0 if it did not or is taken back
	buf        []byte
}

// newJournal is a journal whose segments are both free, and which goes on after
// generation.
func newJournal(l layout, file store, generation uint64, segment int) *journal {
	return &journal{layout: l, file: file, generation: generation, current: segment, at: l.start(segment) + l.segment}
}

// fits reports whether a group of that size may stand in a segment at all.
func (j *journal) fits(size int64) bool { return sector+size+sector <= j.segment }

// needsFree is the number of the row up to which everything has to be durable
// in the database before a group of that size can be written.
func (j *journal) needsFree(size int64) int64 {
	if j.hasRoom(size) {
		return 0
	}
	return j.last[1-j.current]
}

// hasRoom leaves a sector of zeros after the group.
func (j *journal) hasRoom(size int64) bool {
	return j.at+size+sector <= j.start(j.current)+j.segment
}

// write makes rows durable: one write, one sync. After an error nobody knows
// what lies there; nothing else is written before that is taken back.
func (j *journal) write(rows []loggedRow, size int64) error {
	if err := j.takeBack(); err != nil {
		return err
	}
	generation, segment, at := j.generation, j.current, j.at
	b := j.buf[:0]
	if !j.hasRoom(size) {
		// What the other segment has is in the database for good. Its head and
		// the first group go together: a crash that leaves the head alone, or
		// the old head with a new group, reads as nothing new.
		generation, segment = generation+1, 1-segment
		at = j.start(segment)
		b = append(b, j.segmentSector(segmentHead{generation, rows[0].n})...)
	}
	from := at
	at += int64(len(b))
	b = j.appendGroup(b, generation, at, rows)
	at = from + int64(len(b))
	// What an earlier segment, or a group that failed, left behind the new
	// group must not be taken for what comes after it.
	b = append(b, zeroSector[:]...)
	j.buf = b
	// A crash before the sync leaves the group, a part of it, or nothing: a
	// part is no group, nobody was told anything, and a whole one reads as
	// intents without outcomes, the safe side.
	if err := j.put(b, from); err != nil {
		j.failed = from
		return err
	}
	// A crash after it finds the group.
	j.generation, j.current, j.at, j.last[segment] = generation, segment, at, rows[len(rows)-1].n
	return nil
}

// takeBack erases the beginning of what failed, as it may have got through
// and the next group may go elsewhere, or never come. A crash before this
// finds intents that nobody acted on: indeterminate, the safe side.
func (j *journal) takeBack() error {
	if j.failed == 0 {
		return nil
	}
	if err := j.put(zeroSector[:], j.failed); err != nil {
		return err
	}
	j.failed = 0
	return nil
}

// probe tries whether the journal can be written.
func (j *journal) probe() error {
	if j.failed != 0 || !j.hasRoom(0) {
		return j.takeBack()
	}
	return j.put(zeroSector[:], j.at)
}

func (j *journal) put(b []byte, at int64) error {
	n, err := j.file.WriteAt(b, at)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("writing ledger.journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("syncing ledger.journal: %w", err)
	}
	return nil
}

func (j *journal) close() error {
	if j == nil || j.file == nil {
		return nil
	}
	return j.file.Close()
}

// makeJournal fills an empty file. The header comes last: without it the file
// is no journal, and the next start makes it again.
func makeJournal(f *os.File, l layout) error {
	if err := durable.Zeros(f, l.size()); err != nil {
		return err
	}
	n, err := f.WriteAt(l.header(), 0)
	if err == nil && n < fileHeader {
		err = io.ErrShortWrite
	}
	return errors.Join(err, f.Sync())
}
