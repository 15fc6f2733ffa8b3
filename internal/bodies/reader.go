package bodies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Reader reads one body. It may be used by many goroutines.
type Reader struct {
	in     io.ReaderAt
	file   *os.File // in, or nil: it is not on the disk yet
	seal   sealer
	chunks int64
	size   int64

	mu     sync.Mutex
	number int64 // of the chunk in plain; -1 for none
	plain  []byte
	buf    []byte
}

// Open opens a body and proves that it is whole. What is not there, or there no
// longer, is ErrGone.
func (s *Store) Open(name Name) (*Reader, error) {
	if !name.valid() {
		return nil, ErrGone
	}
	at, sealed, kept := s.has(name, time.Now())
	switch {
	case !kept:
		return nil, ErrGone
	case sealed != nil:
		return s.reader(bytes.NewReader(sealed), int64(len(sealed)), name)
	}
	f, err := s.root.Open(at.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("opening a body: %w", err)
	}
	r, err := s.fileReader(f, at.part, name)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.file = f
	return r, nil
}

func (s *Store) fileReader(f *os.File, part section, name Name) (*Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening a body: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, ErrDamaged
	}
	if part.size == 0 {
		part.size = info.Size()
	}
	return s.reader(io.NewSectionReader(f, part.from, part.size), part.size, name)
}

func (s *Store) reader(in io.ReaderAt, fileSize int64, name Name) (*Reader, error) {
	header := make([]byte, headerSize)
	chunks, size, ok := layout(fileSize)
	if !ok {
		return nil, ErrDamaged
	}
	if _, err := in.ReadAt(header, 0); err != nil || string(header[:len(magic)]) != magic {
		return nil, ErrDamaged
	}
	seal, err := s.sealerFor(name.file(), header[len(magic):])
	if err != nil {
		return nil, err
	}
	r := &Reader{in: in, seal: seal, chunks: chunks, size: size, number: -1, buf: make([]byte, min(fileSize-int64(headerSize), sealedSize))}
	// The last chunk proves the size: it is marked, and its number counts.
	if err := r.load(chunks - 1); err != nil {
		return nil, err
	}
	return r, nil
}

// Size is that of the body in the clear.
func (r *Reader) Size() int64 { return r.size }

// ReadAt reads as io.ReaderAt says.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off < 0 {
		return 0, errors.New("reading a body from before its begin")
	}
	n := 0
	for n < len(p) {
		if off >= r.size {
			return n, io.EOF
		}
		if err := r.load(off / chunkSize); err != nil {
			return n, err
		}
		m := copy(p[n:], r.plain[off%chunkSize:])
		n, off = n+m, off+int64(m)
	}
	return n, nil
}

// load makes one chunk the present one. The caller holds mu, or nobody else has r.
func (r *Reader) load(number int64) error {
	if r.number == number {
		return nil
	}
	at := int64(headerSize) + number*sealedSize
	r.number = -1
	last := number == r.chunks-1
	sealed := r.buf[:cap(r.buf)]
	if last {
		sealed = sealed[:r.size-number*chunkSize+tagSize]
	}
	if _, err := r.in.ReadAt(sealed, at); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	plain, err := r.seal.open(sealed, number, last)
	if err != nil {
		return err
	}
	r.plain, r.number = plain, number
	return nil
}

// Close ends the reading.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.buf)
	r.number = -1
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
