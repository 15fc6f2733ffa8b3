package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/yett-broker/yett/internal/durable"
)

// heads is what the ledger knows of its signed heads.
type heads struct {
	mu     sync.Mutex
	signed Checkpoint
	head   []byte // the newest that lies in HeadFile and was signed by this run
}

func (p *place) head() string { return filepath.Join(p.dir, HeadFile) }

// SignHead signs the tree of the rows that the database has, and puts the head
// in the place of the one before in HeadFile. It does nothing where nothing
// has changed since. It signs what this run wrote on top of what CheckHead and
// CheckOperations found right, and after a change by somebody else nothing: so
// the old head stays until a person has acknowledged.
func (l *Ledger) SignHead(k *LogKey, vaultGeneration uint64) (head []byte, size int64, err error) {
	l.heads.mu.Lock()
	defer l.heads.mu.Unlock()
	if err := l.w.doubted(); err != nil {
		return nil, 0, fmt.Errorf("signing head: %w", err)
	}
	if !l.checked.Load() {
		return nil, 0, fmt.Errorf("signing head: %w", ErrUnchecked)
	}
	size, root := l.w.drain.root()
	c := Checkpoint{Origin: k.Name(), Size: size, Root: root, Vault: vaultGeneration}
	if l.heads.head != nil && c == l.heads.signed {
		return l.heads.head, size, nil
	}
	if head, err = k.seal(c); err != nil {
		return nil, 0, err
	}
	if l.heads.head == nil {
		if err := durable.WriteFile(filepath.Join(l.place.dir, KeyFile), []byte(k.VerifierKey()+"\n"), false); err != nil {
			return nil, 0, fmt.Errorf("keeping the log's verifier key: %w", err)
		}
	}
	if err := durable.WriteFile(l.place.head(), head, false); err != nil {
		return nil, 0, fmt.Errorf("keeping head: %w", err)
	}
	l.heads.signed, l.heads.head = c, head
	l.TellVault(vaultGeneration)
	return head, size, nil
}

// TellVault lets rows from now on tell the generation that the vault's file has
// been saved with. SignHead does so too.
func (l *Ledger) TellVault(generation uint64) { l.w.vault.Store(generation) }

// KeepHeadAside gives the head in HeadFile a second name, and returns both. Of
// a missing one both are empty.
func (l *Ledger) KeepHeadAside() (head []byte, name string, err error) {
	if head, err = durable.ReadFile(l.place.head(), maxHead); errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	name = HeadFile + ".kept-" + rand.Text()[:8]
	if kept := durable.KeepAs(l.place.head(), filepath.Join(l.place.dir, name)); kept != nil {
		return nil, "", fmt.Errorf("keeping the old head: %w", errors.Join(err, kept))
	}
	return head, name, nil // what is no head is kept too
}

// Drain returns when every durable row is in the database, where heads are
// taken from.
func (l *Ledger) Drain() error { return l.w.drain.upTo(0) }

func (d *drain) root() (int64, tlog.Hash) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tree.size, d.tree.root()
}

// HeadFor is what CheckHead compares the ledger with.
type HeadFor struct {
	Key        *LogKey
	Vault      []byte // the head that the vault keeps, nil if there was none yet
	Generation uint64 // of the vault's file, as it was found
}

// CheckHead compares the ledger with the head in HeadFile and with the one in
// the vault, and the vault's generation with what both say of it. What does
// not fit makes the ledger quarantined, with an error that wraps ErrTampered.
func (l *Ledger) CheckHead(ctx context.Context, h HeadFor) error {
	l.heads.mu.Lock()
	defer l.heads.mu.Unlock()
	err := l.checkHead(ctx, h)
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrTampered) {
		err = unavailable(err)
	}
	l.w.setDoubt(err)
	return fmt.Errorf("checking head: %w", err)
}

func (l *Ledger) checkHead(ctx context.Context, h HeadFor) error {
	beside, err := durable.ReadFile(l.place.head(), maxHead)
	switch {
	case errors.Is(err, fs.ErrNotExist) && h.Vault == nil:
		return nil // nothing was signed yet
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is missing", ErrTampered, HeadFile)
	case err != nil:
		return changed(HeadFile, err)
	}
	for _, found := range []struct {
		where string
		head  []byte
	}{{HeadFile, beside}, {"the vault's head", h.Vault}} {
		if found.head == nil {
			continue
		}
		c, err := OpenCheckpoint(found.head, h.Key.VerifierKey())
		if err != nil {
			return changed(found.where, err)
		}
		if err := l.compareHead(ctx, c); err != nil {
			return changed(found.where, err)
		}
		if h.Generation < c.Vault {
			return fmt.Errorf("%w: the vault is of generation %d, and %s has seen generation %d: an older vault was put in its place",
				ErrTampered, h.Generation, found.where, c.Vault)
		}
	}
	return nil
}

// changed marks what was found wrong, unless it could not be looked at.
func changed(where string, err error) error {
	if sqliteCode(err) != 0 || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrTampered, where, err)
}

// compareHead holds the rows against a head.
func (l *Ledger) compareHead(ctx context.Context, c Checkpoint) error {
	size, _ := l.w.drain.root()
	if c.Size > size {
		return fmt.Errorf("it is over %d rows, and ledger.db has %d: rows were cut off, or an older file was put in its place", c.Size, size)
	}
	t, err := readTree(ctx, l.readDB, c.Size)
	if err == nil && t.root() != c.Root {
		err = fmt.Errorf("the first %d rows are not those that it is over", c.Size)
	}
	return err
}

// checkStart makes those checks of a start that take no key: the head beside
// the database, as it says of itself, and the newest rows.
func (l *Ledger) checkStart(ctx context.Context) error {
	head, err := durable.ReadFile(l.place.head(), maxHead)
	if err == nil {
		var c Checkpoint
		if c, err = readCheckpoint(head); err == nil {
			err = l.compareHead(ctx, c)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return changed(HeadFile, err)
	}
	last := l.entries.Load()
	return l.scrub(ctx, max(0, last-checkedAtStart)>>nodeLevel, last)
}

const (
	// checkedAtStart is how many of the newest rows a start compares with
	// their hashes. The others follow after the first unlocking, slowly.
	checkedAtStart = 2048
	scrubPause     = 10 * time.Millisecond
)

// scrub compares the rows from a subtree of nodeLevel on, up to row last, with
// their hashes, and these with the nodes that the root is made of.
func (l *Ledger) scrub(ctx context.Context, from, last int64) error {
	for i := from; i<<nodeLevel < last; i++ {
		if err := l.scrubNode(ctx, i, min(last, (i+1)<<nodeLevel)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) scrubNode(ctx context.Context, i, last int64) error {
	first := i<<nodeLevel + 1
	rows, err := scanLeaves(l.readDB.QueryContext(ctx, "SELECT n, epoch, sealed, leaf FROM rows WHERE n>=? AND n<=? ORDER BY n", first, last))
	if err != nil {
		return err
	}
	var t tree
	for k, r := range rows {
		leaf := leafHash(r.n, r.epoch, r.sealed)
		if want := first + int64(k); r.n != want {
			return fmt.Errorf("%w: row %d is missing", ErrTampered, want)
		}
		if !bytes.Equal(leaf[:], r.leaf) {
			return fmt.Errorf("%w: row %d does not match its hash", ErrTampered, r.n)
		}
		t.add(leaf, nil)
	}
	if t.size != last-first+1 {
		return fmt.Errorf("%w: row %d is missing", ErrTampered, first+t.size)
	}
	if t.size < 1<<nodeLevel {
		return nil // part of the root as they are
	}
	if h, err := (nodeReader{ctx, l.readDB}).hash(nodeLevel, i); err != nil || h != t.root() {
		return fmt.Errorf("%w: the rows from %d to %d are not those of the tree", ErrTampered, first, last)
	}
	return nil
}

// scrubSlowly compares all rows of earlier runs, beside everything else and at
// a pace that nobody notices. What it finds is kept for later starts.
func (l *Ledger) scrubSlowly() {
	for i := int64(0); i<<nodeLevel < l.foundRows; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), busyMillis*time.Millisecond)
		err := l.scrubNode(ctx, i, min(l.foundRows, (i+1)<<nodeLevel))
		cancel()
		if errors.Is(err, ErrTampered) {
			l.w.setDoubt(err)
			_ = l.w.drain.around(nil, func(t *transaction) { t.exec(t.d.stmt.foundProblem, err.Error()) })
			return
		}
		select {
		case <-l.w.drain.quit:
			return
		case <-time.After(scrubPause):
		}
	}
}
