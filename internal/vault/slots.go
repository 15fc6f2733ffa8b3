package vault

import (
	"bytes"
	"crypto/hpke"
	"errors"
	"fmt"
)

// Sizes of a slot's public key and of what is sealed to it.
const (
	publicSize = 1216
	sealedSize = 1120 + keySize + 16
)

func slotKEM() hpke.KEM { return hpke.MLKEM768X25519() }

func slotInfo(name string) []byte { return []byte("yett-vault/2 slot " + name) }

// slotData is the associated data of version 1.
func slotData(name string) []byte { return []byte("yett-vault/1 slot " + name) }

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
// keys, in one save: a crash leaves the old one or the new one, and the other
// slots open before and after. Proofs by the old one are invalid from then on.
// Called only with the person's proof.
//
// The data key is replaced too, so that whoever knows the old passphrase and
// has an old copy of the file cannot open a later one with it.
func (v *Vault) SetSlot(name string, kdf KDF, keys *Keys) error {
	if name == SlotKeychain { // a share is no passphrase: SetKeychain
		return fmt.Errorf("no slot %q for a passphrase", name)
	}
	if err := kdf.check(); err != nil {
		return err
	}
	if len(keys.Unlock) != keySize || len(keys.Approval) != keySize {
		return errors.New("derived keys of a wrong size")
	}
	return v.change(func(_ *opened, d *draft) error {
		for i := range d.header.Slots {
			if d.header.Slots[i].Name != name {
				continue
			}
			s, err := newSlot(name, kdf, keys.Unlock)
			if err != nil {
				return err
			}
			d.header.Slots[i] = s
			copy(d.keys.approval(i), keys.Approval)
			return d.rekey(i)
		}
		return fmt.Errorf("no slot %q", name)
	})
}

// Renew saves once more without a change, so that the previous generation on
// disk opens with what opens the present one and with nothing older.
func (v *Vault) Renew() error {
	return v.change(func(*opened, *draft) error { return nil })
}

// rekey wraps a new data key to every slot, or the old one to the slot that was
// set, while there is a slot of version 1, which has nothing to wrap it to.
func (d *draft) rekey(set int) error {
	for _, s := range d.header.Slots {
		if s.Public == nil {
			return d.header.Slots[set].wrap(d.keys.data())
		}
	}
	copyRandom(d.keys.data())
	for i := range d.header.Slots {
		if err := d.header.Slots[i].wrap(d.keys.data()); err != nil {
			return err
		}
	}
	return nil
}

// newSlot is a slot that wraps nothing yet.
func newSlot(name string, kdf KDF, unlockKey []byte) (sealedSlot, error) {
	public := make([]byte, publicSize)
	var err error
	secretly(func() {
		var private hpke.PrivateKey
		if private, err = slotKEM().NewPrivateKey(unlockKey); err == nil {
			copy(public, private.PublicKey().Bytes())
		}
	})
	if err != nil {
		return sealedSlot{}, errors.New("making a slot's key pair failed")
	}
	return sealedSlot{Name: name, KDF: kdf, Public: public}, nil
}

func (s *sealedSlot) wrap(dataKey []byte) error {
	public, err := slotKEM().NewPublicKey(s.Public)
	if err != nil {
		return fmt.Errorf("reading the public key of the %s slot: %w", s.Name, err)
	}
	s.Wrapped, err = hpke.Seal(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), slotInfo(s.Name), dataKey)
	return err
}

// unwrap fails on a wrong key; it says nothing else about why.
func (s *sealedSlot) unwrap(unlockKey []byte) ([]byte, error) {
	if s.Public == nil {
		return open(unlockKey, s.Wrapped, slotData(s.Name))
	}
	dataKey := make([]byte, keySize)
	var err error
	secretly(func() {
		var private hpke.PrivateKey
		if private, err = slotKEM().NewPrivateKey(unlockKey); err != nil {
			return
		}
		var opened []byte
		opened, err = hpke.Open(private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), slotInfo(s.Name), s.Wrapped)
		if err == nil && len(opened) != keySize {
			err = ErrWrongKey
		}
		copy(dataKey, opened)
		clear(opened)
	})
	if err != nil {
		return nil, ErrWrongKey
	}
	return dataKey, nil
}

func (s *sealedSlot) checkSizes() error {
	if s.Public == nil && s.Name != SlotKeychain && len(s.Wrapped) == boxSize || len(s.Public) == publicSize && len(s.Wrapped) == sealedSize {
		return nil
	}
	return errors.New("a slot's key of a wrong size")
}
