package vault

import "bytes"

// keyring is the keys of an unlocked vault in one piece of locked memory:
// data key, root key, audit private key, one approval key for each slot.
type keyring struct {
	mem *lockedMemory
}

func keyringSize(slots int) int { return (3 + slots) * keySize }

// newKeyring copies; sealed is root key, audit private key and approval keys.
func newKeyring(dataKey, sealed []byte) *keyring {
	k := &keyring{mem: newLockedMemory(len(dataKey) + len(sealed))}
	copy(k.mem.bytes, dataKey)
	copy(k.mem.bytes[keySize:], sealed)
	return k
}

func (k *keyring) nth(i int) []byte     { return k.mem.bytes[i*keySize : (i+1)*keySize] }
func (k *keyring) data() []byte         { return k.nth(0) }
func (k *keyring) root() []byte         { return k.nth(1) }
func (k *keyring) auditPrivate() []byte { return k.nth(2) }
func (k *keyring) approval(slot int) []byte {
	return k.nth(3 + slot)
}
func (k *keyring) slots() int       { return len(k.mem.bytes)/keySize - 3 }
func (k *keyring) size() int        { return len(k.mem.bytes) }
func (k *keyring) sealable() []byte { return k.mem.bytes[keySize:] }

func (k *keyring) clone() *keyring {
	c := &keyring{mem: newLockedMemory(len(k.mem.bytes))}
	copy(c.mem.bytes, k.mem.bytes)
	return c
}

// withSlot is the same keys with room for the approval key of one slot more.
func (k *keyring) withSlot() *keyring {
	c := &keyring{mem: newLockedMemory(len(k.mem.bytes) + keySize)}
	copy(c.mem.bytes, k.mem.bytes)
	return c
}

// withoutSlot is the same keys without the approval key of one slot.
func (k *keyring) withoutSlot(slot int) *keyring {
	c := &keyring{mem: newLockedMemory(len(k.mem.bytes) - keySize)}
	n := copy(c.mem.bytes, k.mem.bytes[:(3+slot)*keySize])
	copy(c.mem.bytes[n:], k.mem.bytes[(4+slot)*keySize:])
	return c
}

func (k *keyring) equal(o *keyring) bool { return bytes.Equal(k.mem.bytes, o.mem.bytes) }

// destroy wipes the keys. The keyring must not be used again.
func (k *keyring) destroy() { k.mem.free() }
