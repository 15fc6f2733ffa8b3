package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/yett-broker/yett/internal/durable"
)

var errNowhere = errors.New("this vault is a backup that lies in no directory")

// Image is the sealed file as it is on disk: a backup. It opens with what the
// slots were when it was taken.
func (v *Vault) Image() []byte {
	image, _ := v.Snapshot()
	return image
}

// Snapshot is the image and the generation that it is of.
func (v *Vault) Snapshot() (image []byte, generation uint64) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return bytes.Clone(v.file.raw), v.file.header.Generation
}

// Parse takes a backup for a locked vault that lies in no directory: it can be
// unlocked and restored, not changed.
func Parse(image []byte) (*Vault, error) {
	f, err := parseFile(bytes.Clone(image))
	if err != nil {
		return nil, fmt.Errorf("reading the backup: %w", err)
	}
	return &Vault{file: f}, nil
}

// WriteBackup makes a new file of an image. It replaces nothing.
func WriteBackup(path string, image []byte) error {
	if _, err := parseFile(image); err != nil {
		return fmt.Errorf("the backup is not whole: %w", err)
	}
	return durable.CreateFile(path, image)
}

// ReadBackup reads a backup, wherever it was carried to: its mode and owner may
// have been lost on the way, and its content proves itself.
func ReadBackup(path string) (*Vault, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", filepath.Base(path))
	case info.Size() > maxFile:
		return nil, damaged(durable.ErrTooLarge)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(raw)
}

// Restored says what Restore did.
type Restored struct {
	Generation uint64 // of the vault that is in place now
	Backup     uint64 // of the backup
	Replaced   uint64 // of the vault that was there, 0 if none could be read
	Aside      string // where that file lies now, "" if there was none
}

// Restore writes an unlocked backup into dir, in place of a vault there, which
// is kept aside, damaged or not. The restored vault counts on from the later of
// both, and carries a note of what happened for the ledger. Called only with
// the person's proof, and while no broker has the vault in dir open: one that
// has would notice at its next save, and not before.
func (v *Vault) Restore(dir string) (Restored, error) {
	if v.Locked() {
		return Restored{}, ErrLocked // only what has opened is known to be whole
	}
	if err := makeDir(dir); err != nil {
		return Restored{}, fmt.Errorf("restoring the vault: %w", err)
	}
	unlock, err := lockDir(dir, lockWait)
	if err != nil {
		return Restored{}, fmt.Errorf("restoring the vault: %w", err)
	}
	defer unlock()
	r, err := v.restore(filepath.Join(dir, FileName))
	if err != nil {
		return Restored{}, fmt.Errorf("restoring the vault: %w", err)
	}
	return r, nil
}

func (v *Vault) restore(path string) (r Restored, err error) {
	there, after := true, uint64(0)
	if r.Replaced, err = generationAt(path); errors.Is(err, fs.ErrNotExist) {
		there = false
	} else if err != nil {
		return Restored{}, err
	}
	if after, err = generationAt(path + durable.Previous); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Restored{}, err
	}
	r.Backup = v.Generation()
	f, err := v.resealed(max(after, r.Replaced), Note{At: now(), Kind: NoteRestored, Backup: r.Backup, Replaced: r.Replaced})
	if err != nil {
		return Restored{}, err
	}
	r.Generation = f.header.Generation
	if err := durable.RemoveLeftovers(path); err != nil {
		return Restored{}, err
	}
	// A crash up to the replacement leaves the vault that was there, perhaps
	// with a second name.
	if there {
		r.Aside = path + ".replaced-" + now().Format("20060102T150405.000Z")
		if err := durable.KeepAs(path, r.Aside); err != nil {
			return Restored{}, err
		}
	}
	return r, writeFile(path, f.raw, true)
}

// generationAt is 0 for a damaged vault: that is what backups are for.
func generationAt(path string) (uint64, error) {
	f, err := readFile(path)
	if errors.Is(err, ErrDamaged) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return f.header.Generation, nil
}

// resealed is the same vault as the generation after its own and after another,
// with a note.
func (v *Vault) resealed(after uint64, n Note) (*file, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	h, c := v.file.header, v.open.content.clone()
	h.Generation = max(h.Generation, after) + 1
	c.LedgerHead = nil // the ledger is not in a backup: it may have gone on, or not be here at all
	c.addNote(n)
	return sealContent(h, v.open.keys, c)
}
