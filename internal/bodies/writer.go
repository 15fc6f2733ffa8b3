package bodies

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Writer takes one body as it comes. One goroutine uses it, and ends it with
// Commit or Abort.
type Writer struct {
	s      *Store
	name   Name
	seal   sealer
	salt   []byte
	plain  []byte // of the chunk that is being filled: at most chunkSize
	sealed []byte
	number int64
	size   int64
	file   *os.File // nil until there is more than one chunk
	failed error
}

// Create begins a body. Nothing is on disk before there is more than a chunk of
// it, or Commit. An older body of that name is replaced.
func (s *Store) Create(name Name) (*Writer, error) {
	if !name.valid() {
		return nil, fmt.Errorf("%q is no name of a body", name.file())
	}
	w := &Writer{s: s, name: name, salt: newSalt()}
	var err error
	if w.seal, err = s.sealerFor(name.file(), w.salt); err != nil {
		return nil, err
	}
	return w, nil
}

// Size is how many bytes were written.
func (w *Writer) Size() int64 { return w.size }

// Write takes the next bytes. After an error the body cannot be committed.
func (w *Writer) Write(p []byte) (int, error) {
	if w.failed != nil {
		return 0, w.failed
	}
	taken := 0
	for len(p) > 0 {
		if len(w.plain) == chunkSize { // more follows: this is not the last
			if w.failed = w.flush(); w.failed != nil {
				return taken, w.failed
			}
		}
		n := min(len(p), chunkSize-len(w.plain))
		w.fill(p[:n])
		p, taken = p[n:], taken+n
		w.size += int64(n)
	}
	return taken, nil
}

// fill adds to the chunk. What a grown buffer leaves behind is wiped.
func (w *Writer) fill(p []byte) {
	if need := len(w.plain) + len(p); need > cap(w.plain) {
		grown := make([]byte, len(w.plain), min(max(2*cap(w.plain), need), chunkSize))
		copy(grown, w.plain)
		clear(w.plain)
		w.plain = grown
	}
	w.plain = append(w.plain, p...)
}

// flush writes a full chunk that is not the last.
func (w *Writer) flush() error {
	if w.file == nil {
		f, err := w.s.create(w.name.file() + unfinished)
		if err != nil {
			return err
		}
		w.file = f
		if err := writeAll(f, append([]byte(magic), w.salt...)); err != nil {
			return err
		}
	}
	if err := w.s.roomFor(w.file, w.number); err != nil {
		return err
	}
	w.sealed = w.seal.seal(w.sealed[:0], w.plain, w.number, false)
	w.number++
	clear(w.plain)
	w.plain = w.plain[:0]
	return writeAll(w.file, w.sealed)
}

// Commit ends the body: it can be read from now on. After an error there is
// none.
func (w *Writer) Commit() error {
	if w.failed == nil {
		w.failed = w.finish()
	}
	if w.failed != nil {
		w.Abort()
		return w.failed
	}
	w.wipe()
	return nil
}

func (w *Writer) finish() error {
	file := w.name.file()
	size := int64(headerSize) + w.number*sealedSize + int64(len(w.plain)) + tagSize
	if w.file != nil {
		if err := writeAll(w.file, w.seal.seal(w.sealed[:0], w.plain, w.number, true)); err != nil {
			return err
		}
		if err := w.file.Close(); err != nil {
			return asRoom(err)
		}
		// A crash before the rename leaves a part that Open removes.
		if err := w.s.root.Rename(file+unfinished, file); err != nil {
			return fmt.Errorf("naming a body: %w", err)
		}
		w.file = nil
		w.s.added(w.name, size, time.Now())
		return nil
	}
	whole := append(make([]byte, 0, size), magic...)
	whole = w.seal.seal(append(whole, w.salt...), w.plain, 0, true)
	now := time.Now()
	if w.s.later(w.name, whole, now) {
		return nil
	}
	if err := w.s.writeWhole(file, whole); err != nil {
		return err
	}
	w.s.added(w.name, size, now)
	return nil
}

// writeWhole writes a file at once and under its name: a crash leaves none of it,
// or all.
func (s *Store) writeWhole(file string, whole []byte) error {
	f, err := s.create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(s.roomFor(f, 0), writeAll(f, whole), f.Close()); err != nil {
		s.root.Remove(file)
		return asRoom(err)
	}
	return nil
}

// Abort ends the body without keeping anything of it. After Commit it does
// nothing.
func (w *Writer) Abort() {
	w.wipe()
	if w.failed == nil {
		w.failed = errors.New("the body was given up")
	}
	if w.file == nil {
		return
	}
	w.file.Close()
	w.file = nil
	w.s.root.Remove(w.name.file() + unfinished)
}

func (w *Writer) wipe() {
	clear(w.plain[:cap(w.plain)])
	w.plain = nil
}

// create makes a file that was not there. One that was is of a ledger that was
// put back since, whose rows have these numbers again.
func (s *Store) create(file string) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := s.root.OpenFile(file, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err := s.root.Remove(file); err != nil {
			return nil, fmt.Errorf("replacing a body: %w", err)
		}
		f, err = s.root.OpenFile(file, flags, 0o600)
	}
	if err != nil {
		return nil, asRoom(fmt.Errorf("making a file for a body: %w", err))
	}
	return f, nil
}

func writeAll(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil { // a short write is an error too
		return asRoom(fmt.Errorf("writing a body: %w", err))
	}
	return nil
}

// asRoom names the errors that mean that there is no room.
func asRoom(err error) error {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrNoRoom, err)
		}
	}
	return err
}
