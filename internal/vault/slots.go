package vault

import (
	"bytes"
	"fmt"
)

// Slot tells a client how to derive the keys of one slot.
type Slot struct {
	Name string `json:"name"`
	KDF  KDF    `json:"kdf"`
}

// Slots lists the slots with what is needed to derive their keys.
func (v *Vault) Slots() []Slot {
	v.mu.RLock()
	defer v.mu.RUnlock()
	slots := make([]Slot, len(v.file.header.Slots))
	for i, s := range v.file.header.Slots {
		slots[i] = Slot{Name: s.Name, KDF: s.KDF}
		slots[i].KDF.Salt = bytes.Clone(s.KDF.Salt)
	}
	return slots
}

// SetSlot gives a slot another passphrase or recovery code, by its derived
// keys. Called only with the person's proof.
func (v *Vault) SetSlot(name string, kdf KDF, keys *Keys) error {
	if err := kdf.check(); err != nil {
		return err
	}
	return v.change(func(_ *opened, d *draft) error {
		for i := range d.header.Slots {
			if s := &d.header.Slots[i]; s.Name == name {
				wrapped, err := seal(keys.Unlock, d.keys.data(), slotData(name))
				if err != nil {
					return err
				}
				*s = sealedSlot{Name: name, KDF: kdf, Wrapped: wrapped}
				copy(d.keys.approval(i), keys.Approval)
				return nil
			}
		}
		return fmt.Errorf("no slot %q", name)
	})
}
