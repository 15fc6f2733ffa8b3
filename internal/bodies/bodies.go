// Package bodies keeps the bodies of answers sealed in files, so that a large one
// need not lie in memory and a row of the ledger need not hold it. It trusts whoever lends it the key, and nothing that it reads from disk.
//
// # Files
//
// DIR/bodies holds files of mode 0600. A body with a file of its own names it by
// the row of its intent, the session that may read it, and what it is. Bodies of at
// most one chunk that a session gets at about the same time lie together in a pack,
// named by the first of them:
//
//	8841.s_0123….body      the body of an HTTP answer, or standard output
//	8841.s_0123….stderr    standard error
//	8841.s_0123….stdout-tail, ….stderr-tail
//	                       the end of one whose middle is left out
//	8841.s_0123….body.part not finished
//	8841.s_0123….body.pack several of one session
//
// A body is
//
//	magic    "yett body 1\n"
//	salt     32 random bytes
//	chunks   AES-256-GCM of 64 KiB each; the last may be shorter, and only it
//	         may be empty
//
// The key of a body is HKDF-Expand of the store's key, with SHA-256 and the info
// "yett-bodies/2 ", the name that a file of its own has, and the salt; the store's
// key is derived inside the vault, so that it needs no HKDF-Extract, and lies here
// only while it is unlocked. A chunk's nonce is its
// number, 11 bytes big endian, and one byte that is 1 in the last chunk only:
// nothing can be cut, swapped, added, or put under another name. Sizes are not
// hidden.
//
// A pack is
//
//	magic    "yett pack 1\n"
//	count    uint16, 1 to 256
//	records  for each body int64 row, uint8 stream (the index in Streams) and
//	         uint32 size; the numbers are big endian
//	bodies   each as in a file of its own, in this order, to the end of the file
//
// The records say where to look and no more: a body opens under its own name only.
//
// # What a crash leaves
//
// A body is no evidence, its row is: bodies are not synced, and a row without a
// body is a body that is kept no longer.
//
//	before the first byte    nothing, or an empty file
//	while a body is written  a file that ends in .part, or one that is cut
//	after Commit             the whole body, but for one of a single chunk: that is
//	                         written behind the answer, some 100 ms later; after a
//	                         power cut perhaps a cut one
//
// Open removes what ends in .part, what is too short to be a body, and packs whose
// bodies do not fill them exactly. What is cut elsewhere does not open, since its last chunk is not marked as the last.
//
// # How long
//
// A body is kept for MaxAge. Where all of them are larger than MaxTotal, the
// session that keeps most loses its oldest first, so that one that floods takes
// no room from the others. A pack goes as a whole, by the age of its oldest body.
// Removal touches no row.
package bodies

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxAge   = 7 * 24 * time.Hour
	DefaultMaxTotal = 1 << 30
	DefaultMaxFiles = 50_000
)

// DirName is the directory of the bodies, in the installation's.
const DirName = "bodies"

var (
	ErrLocked  = errors.New("the key of the bodies is not there")
	ErrGone    = errors.New("the body is kept no longer")
	ErrDamaged = errors.New("the body on disk is damaged")
	ErrNoRoom  = errors.New("there is no room on the disk for the body")
)

// Options bound what is kept; a zero is the default.
type Options struct {
	MaxAge   time.Duration
	MaxTotal int64 // bytes on disk, over all sessions
	MaxFiles int   // bodies
}

// Store is the bodies of one installation. Its methods may be called
// concurrently. One process opens a directory at a time: the one that holds the
// ledger.
type Store struct {
	Options
	root *os.Root

	keyMu sync.RWMutex
	key   []byte // nil while locked

	mu    sync.Mutex
	index index
	fresh fresh
}

// Open makes the directory where it is missing, removes what a crash left, and
// returns the store locked.
func Open(dir string, o Options) (*Store, error) {
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.MaxTotal == 0 {
		o.MaxTotal = DefaultMaxTotal
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	root, err := openPrivate(filepath.Join(dir, DirName))
	if err != nil {
		return nil, fmt.Errorf("opening the directory of bodies: %w", err)
	}
	s := &Store{Options: o, root: root, index: newIndex()}
	s.fresh = fresh{changed: sync.NewCond(&s.mu), sealed: map[Name]*waiting{}, hurry: make(chan struct{}), ended: make(chan struct{})}
	if err := s.scan(); err != nil {
		root.Close()
		return nil, fmt.Errorf("looking through the bodies: %w", err)
	}
	s.Expire(time.Now())
	go s.writeFresh()
	return s, nil
}

// openPrivate opens a directory of the account's own that nobody else can look
// into, and makes it where it is missing.
func openPrivate(path string) (*os.Root, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if info, err := os.Lstat(path); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
			err = fmt.Errorf("%s is open to others (mode %#o)", path, info.Mode().Perm())
		}
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// Unlock gives the store its key, 32 bytes, which it copies.
func (s *Store) Unlock(key []byte) {
	s.keyMu.Lock()
	defer s.keyMu.Unlock()
	clear(s.key)
	s.key = append(make([]byte, 0, len(key)), key...)
}

// Lock forgets the key. A body that is being written is written to its end.
func (s *Store) Lock() {
	s.keyMu.Lock()
	defer s.keyMu.Unlock()
	clear(s.key)
	s.key = nil
}

// Close writes what is not on the disk yet, locks the store and lets its
// directory go.
func (s *Store) Close() error {
	s.endFresh()
	s.Lock()
	return s.root.Close()
}
