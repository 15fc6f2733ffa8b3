package vault

import (
	"slices"
	"time"
)

// Kinds of notes; each becomes the kind of a row.
const NoteRestored = "vault.restored"

// maxNotes bounds the list. The oldest go first.
const maxNotes = 64

// Note is something that was done to the file while no ledger could record it.
// It lies sealed in the vault until the next unlocking has made a row of it.
type Note struct {
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"`
	Backup   uint64    `json:"backup"`   // generation that was put in place
	Replaced uint64    `json:"replaced"` // generation that was there, 0 if none could be read
}

// Older reports that a generation was replaced by an earlier one.
func (n Note) Older() bool { return n.Backup < n.Replaced }

func (c *content) addNote(n Note) {
	c.Unrecorded = append(c.Unrecorded, n)
	if over := len(c.Unrecorded) - maxNotes; over > 0 {
		c.Unrecorded = slices.Delete(c.Unrecorded, 0, over)
	}
}

// Unrecorded lists the notes that no row stands for yet, oldest first.
func (v *Vault) Unrecorded() ([]Note, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	return slices.Clone(v.open.content.Unrecorded), nil
}

// Recorded forgets notes for which rows have been written. A crash between row
// and Recorded leaves the note: it is recorded twice rather than not at all.
func (v *Vault) Recorded(notes []Note) error {
	return v.change(func(_ *opened, d *draft) error {
		d.content.Unrecorded = slices.DeleteFunc(d.content.Unrecorded, func(n Note) bool { return slices.Contains(notes, n) })
		if len(d.content.Unrecorded) == 0 {
			d.content.Unrecorded = nil
		}
		return nil
	})
}
