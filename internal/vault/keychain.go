package vault

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// SlotKeychain is the slot that a share in the login keychain of a Mac opens. A
// vault has none until the person adds it.
//
// The share is 32 random bytes, known to nobody, so no slow derivation stands
// before it: the unlock key is
//
//	HKDF-SHA256(share, the slot's salt, "yett-vault/2 keychain unlock")
//
// In the header the slot's kdf has its salt of 16 bytes and the form "share", and
// zeros. Each share has a salt of its own, which also names the item that it lies
// in. The slot opens the vault and proves nothing: its approval key is random and
// is given to nobody.
const SlotKeychain = "keychain"

// Sizes of a share, and of the salt that belongs to it.
const (
	ShareSize     = 32
	ShareSaltSize = 16

	formShare = "share"
)

// ErrNoKeychain: the vault has no keychain slot.
var ErrNoKeychain = errors.New("the vault has no keychain slot")

// NewShare returns a share and its salt, for SetKeychain.
func NewShare() (share, salt []byte) { return randomBytes(ShareSize), randomBytes(ShareSaltSize) }

// ShareUnlockKey is the unlock key that a share gives for the slot with this salt.
func ShareUnlockKey(share, salt []byte) ([]byte, error) {
	if len(share) != ShareSize || len(salt) != ShareSaltSize {
		return nil, fmt.Errorf("a share of %d bytes with a salt of %d", len(share), len(salt))
	}
	key := make([]byte, keySize)
	var err error
	secretly(func() {
		var k []byte
		k, err = hkdf.Key(sha256.New, share, salt, "yett-vault/2 keychain unlock", keySize)
		copy(key, k)
		clear(k)
	})
	return key, err
}

func shareKDF(salt []byte) KDF { return KDF{Salt: slices.Clone(salt), Form: formShare} }

// checkShare accepts what shareKDF makes.
func (k KDF) checkShare() error {
	if len(k.Salt) != ShareSaltSize || k.Form != formShare || k.Time != 0 || k.MemoryKiB != 0 || k.Threads != 0 {
		return fmt.Errorf("%w: not those of a share", ErrKDF)
	}
	return nil
}

// SetKeychain adds the keychain slot, or gives it another share, by the share's
// salt and unlock key. The data key is replaced too. Called only with the
// person's proof.
func (v *Vault) SetKeychain(salt, unlockKey []byte) error {
	kdf := shareKDF(salt)
	if err := kdf.checkShare(); err != nil {
		return err
	}
	if len(unlockKey) != keySize {
		return errors.New("an unlock key of a wrong size")
	}
	return v.change(func(_ *opened, d *draft) error {
		s, err := newSlot(SlotKeychain, kdf, unlockKey)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(d.header.Slots, isKeychain)
		if i >= 0 {
			d.header.Slots[i] = s
		} else {
			i = len(d.header.Slots)
			d.header.Slots = append(d.header.Slots, s)
			d.replaceKeys(d.keys.withSlot())
		}
		copyRandom(d.keys.approval(i))
		return d.rekey(i)
	})
}

// RemoveKeychain removes the keychain slot. The data key is replaced, so that the
// share opens nothing that is saved from then on, also with an older copy; only
// while there is a slot of version 1, which has nothing to wrap a new one to, it
// stays.
func (v *Vault) RemoveKeychain() error {
	return v.change(func(_ *opened, d *draft) error {
		i := slices.IndexFunc(d.header.Slots, isKeychain)
		if i < 0 {
			return ErrNoKeychain
		}
		d.header.Slots = slices.Delete(d.header.Slots, i, i+1)
		d.replaceKeys(d.keys.withoutSlot(i))
		if slices.ContainsFunc(d.header.Slots, func(s sealedSlot) bool { return s.Public == nil }) {
			return nil
		}
		return d.rekey(0)
	})
}

func isKeychain(s sealedSlot) bool { return s.Name == SlotKeychain }
