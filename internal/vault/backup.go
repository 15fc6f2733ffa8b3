package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/yett-broker/yett/internal/durable"
)

var errNowhere = errors.New("this vault is a backup that lies in no directory")

// Image is the sealed file as it is on disk: a backup. It opens with what the
// slots were when it was taken.
func (v *Vault) Image() []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return bytes.Clone(v.file.raw)
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

// Restore writes an unlocked backup into dir, in place of a vault there, which
// stays as the previous generation. The restored vault counts on from the
// later of both, so that it is not taken for a rollback.
func (v *Vault) Restore(dir string) error {
	if v.Locked() {
		return ErrLocked // only what has opened is known to be whole
	}
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("restoring the vault: %w", err)
	}
	unlock, err := lockDir(dir, lockWait)
	if err != nil {
		return fmt.Errorf("restoring the vault: %w", err)
	}
	defer unlock()

	path := filepath.Join(dir, FileName)
	var after uint64
	present, err := readFile(path)
	switch {
	case err == nil:
		after = present.header.Generation
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrDamaged):
		// A missing or damaged vault is what backups are for.
	default:
		return fmt.Errorf("restoring the vault: %w", err)
	}
	f, err := v.resealed(after)
	if err != nil {
		return fmt.Errorf("restoring the vault: %w", err)
	}
	if err := durable.RemoveLeftovers(path); err != nil {
		return fmt.Errorf("restoring the vault: %w", err)
	}
	if err := writeFile(path, f.raw, true); err != nil {
		return fmt.Errorf("restoring the vault: %w", err)
	}
	return nil
}

// resealed is the same vault as the generation after its own and after another.
func (v *Vault) resealed(after uint64) (*file, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	h := v.file.header
	h.Generation = max(h.Generation, after) + 1
	return sealContent(h, v.open.keys, v.open.content)
}
