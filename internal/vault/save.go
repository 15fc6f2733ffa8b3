package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/yett-broker/yett/internal/durable"
)

// ErrTooLarge: the vault would outgrow what it can be read back with.
var ErrTooLarge = errors.New("the vault is full")

// writeFile is the way to disk; tests let it fail.
var writeFile = durable.WriteFile

// draft is a change in the making.
type draft struct {
	header  header
	keys    *keyring // belongs to the draft
	content *content // belongs to the draft
}

// replaceKeys gives the draft other keys, of more slots or fewer.
func (d *draft) replaceKeys(k *keyring) {
	d.keys.destroy()
	d.keys = k
}

// change makes, saves and then publishes one change. While it is on its way to
// disk, readers see the old state and Lock works at once.
func (v *Vault) change(edit func(o *opened, d *draft) error) error {
	v.saving.Lock()
	defer v.saving.Unlock()
	if v.dir == "" {
		return errNowhere
	}

	d, old, next, err := v.prepare(edit)
	if err != nil {
		return err
	}
	defer d.keys.destroy()

	// A crash in here leaves the old generation or the new one on disk.
	saved, err := v.commit(old, next)
	if saved {
		v.publish(next, d)
	}
	return err
}

// prepare edits and seals a draft.
func (v *Vault) prepare(edit func(o *opened, d *draft) error) (d *draft, old, next *file, err error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, nil, nil, ErrLocked
	}
	made := &draft{header: v.file.header, keys: v.open.keys.clone(), content: v.open.content.clone()}
	defer func() {
		if err != nil {
			made.keys.destroy()
		}
	}()
	d = made
	d.header.Slots = append([]sealedSlot(nil), d.header.Slots...)
	d.header.Generation++
	if err := edit(v.open, d); err != nil {
		return nil, nil, nil, err
	}
	next, err = sealContent(d.header, d.keys, d.content)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("sealing the vault: %w", err)
	}
	return d, v.file, next, nil
}

// commit replaces old by next on disk, if old is what is there. After a failed
// write it looks: if next is in place although the write failed, memory has to
// follow the disk, or every later save would take it for someone else's.
func (v *Vault) commit(old, next *file) (saved bool, err error) {
	unlock, err := lockDir(v.dir, lockWait)
	if err != nil {
		return false, fmt.Errorf("saving the vault: %w", err)
	}
	defer unlock()
	path := filepath.Join(v.dir, FileName)
	if err := unchanged(path, old); err != nil {
		return false, fmt.Errorf("saving the vault: %w", err)
	}
	if err := durable.RemoveLeftovers(path); err != nil {
		return false, fmt.Errorf("saving the vault: %w", err)
	}
	if err := writeFile(path, next.raw, true); err != nil {
		now, e := durable.ReadFile(path, maxFile)
		return e == nil && bytes.Equal(now, next.raw), fmt.Errorf("saving the vault: %w", err)
	}
	return true, nil
}

// publish shows readers what is on disk. The vault may have been locked
// meanwhile; then only the file is new.
func (v *Vault) publish(next *file, d *draft) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.file = next
	if v.open == nil {
		return
	}
	v.open.content = d.content
	if !v.open.keys.equal(d.keys) {
		v.open.keys.destroy()
		v.open.keys = d.keys.clone()
	}
}

// unchanged compares all of the file, so that no clock, size or inode has to be
// believed.
func unchanged(path string, old *file) error {
	now, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: it is gone", ErrChanged)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrChanged, err)
	case now.sum != old.sum:
		return fmt.Errorf("%w: generation %d was loaded, %d is there", ErrChanged, old.header.Generation, now.header.Generation)
	}
	return nil
}

func sealContent(h header, keys *keyring, c *content) (*file, error) {
	p, err := payload(keys, c)
	if err != nil {
		return nil, err
	}
	defer clear(p)
	return sealFile(h, keys.data(), p)
}
