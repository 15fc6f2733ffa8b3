// Package vault keeps the person's secrets sealed in one file and lends them,
// one call at a time, to the broker. No function returns or exports a stored
// value. It trusts whoever holds the unlock key, and nothing that it reads
// from disk: the file is believed only as far as it opens under that key.
//
// # Keys
//
// A passphrase, or the printed recovery code, goes through Argon2id and HKDF
// into two keys: the unlock key opens the vault, the approval key proves that
// the person decided (HMAC-SHA256). Derive is pure, so that the command line
// derives both and sends neither passphrase nor code to anyone.
//
// # File
//
// DIR/vault.yett, mode 0600, replaced as a whole; DIR/vault.yett.prev is the
// generation before it; DIR/vault.lock excludes other writers. A backup is the
// same file elsewhere. All of it is
//
//	magic      "yett-vault "
//	version    "2\n"
//	length     of the header, 4 bytes, big endian
//	header     JSON, see below
//	nonce      24 bytes
//	payload    XChaCha20-Poly1305 under the data key; the associated data is
//	           everything before the nonce
//	checksum   SHA-256 of everything before it
//
// The checksum tells damage from a wrong key, and tells it before anybody is
// asked for a passphrase; it authenticates nothing. Every version ends in it.
//
// The header has exactly one encoding, which decoding enforces:
//
//	{"generation":7,
//	 "slots":[{"name":"passphrase",
//	           "kdf":{"salt":…,"time":3,"memory_kib":65536,"threads":1,"form":"nfc"},
//	           "public":…,"wrapped":…}, …],
//	 "audit_public_key":…}
//
// The unlock key is the seed of the slot's private key (HPKE, MLKEM768-X25519,
// HKDF-SHA256, ChaCha20-Poly1305); public is its public key, and wrapped is the
// data key sealed to it, encapsulated key first, with the info
// "yett-vault/2 slot " and the slot's name. So the data key can be replaced
// without asking for what opens the other slots.
//
// A vault may have a third slot, keychain: its salt and form belong to a random
// share instead of a passphrase, see SlotKeychain.
//
// The payload is, in the clear: the root key, the audit private key and one
// approval key for each slot in the header's order (32 bytes each), and then a
// JSON object, again with exactly one encoding, of the applied policy, the
// ledger head, the secrets, what was done to the file that no ledger knows of
// yet, and the public keys of passkeys that may prove. Each secret's value is
// sealed once more by itself, under a key derived from the root key; the
// associated data is its name, kind and place, so that a value opens for no
// other place.
//
// Changing a slot makes a new data key: an old copy of the file together with
// the old passphrase opens what was in that copy, and nothing later.
//
// Version 1 is read and never written. Its slots have no form and no public;
// their wrapped is nonce and XChaCha20-Poly1305 of the data key under the
// unlock key, with the associated data "yett-vault/1 slot " and the name. As
// long as a vault has such a slot its data key stays.
package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/yett-broker/yett/internal/durable"
)

var (
	ErrNoVault  = errors.New("there is no vault")
	ErrExists   = errors.New("there is a vault already")
	ErrDamaged  = errors.New("the vault file is damaged")
	ErrVersion  = errors.New("the vault file is of a version that this release does not know")
	ErrWrongKey = errors.New("the key does not open the vault")
	ErrLocked   = errors.New("the vault is locked")
	ErrChanged  = errors.New("the vault file was changed by someone else")
	ErrBusy     = errors.New("another process is writing the vault")
)

// Names in the vault's directory, and the names of the slots that every vault has.
const (
	FileName = "vault.yett"
	lockName = "vault.lock"

	SlotPassphrase = "passphrase"
	SlotRecovery   = "recovery"
)

// Vault is one vault file, locked or unlocked. All methods may be called
// concurrently. A vault that was unlocked is to be locked before it is dropped,
// since its keys lie in memory that the garbage collector does not know.
type Vault struct {
	dir      string // "" for a backup
	previous uint64 // at Load, the generation of the file beside it; 0 for none
	loaded   uint64 // at Load, its own generation

	saving sync.Mutex // held over one change, disk included; taken before mu

	mu   sync.RWMutex // never held over disk or key derivation
	file *file        // as loaded or as saved last; never changed in place
	open *opened      // nil while locked
}

// opened is what exists only while the vault is unlocked.
type opened struct {
	keys    *keyring
	values  *lockedMemory // the key that seals single values
	content *content      // never changed in place
}

func (o *opened) destroy() {
	o.keys.destroy()
	o.values.free()
}

// Load reads the vault in dir and leaves it locked. Nothing in it is
// authentic before Unlock.
func Load(dir string) (*Vault, error) {
	if err := checkDir(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w in %s", ErrNoVault, dir)
		}
		return nil, fmt.Errorf("opening the vault: %w", err)
	}
	f, err := readFile(filepath.Join(dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Lstat(filepath.Join(dir, FileName+durable.Previous)); e == nil {
			return nil, fmt.Errorf("%w: only its previous generation is there", ErrDamaged)
		}
		return nil, fmt.Errorf("%w in %s", ErrNoVault, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the vault: %w", err)
	}
	v := &Vault{dir: dir, file: f, loaded: f.header.Generation}
	if prev, err := readFile(filepath.Join(dir, FileName+durable.Previous)); err == nil {
		v.previous = prev.header.Generation
	}
	return v, nil
}

// RolledBack reports that at Load the previous generation was a later one, and
// which: an older file was put in place. That it is false proves nothing, since
// both may have been replaced; the ledger's head knows the generation too.
func (v *Vault) RolledBack() (older bool, previous uint64) { return v.previous > v.loaded, v.previous }

// Generation counts the saves of this vault.
func (v *Vault) Generation() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.file.header.Generation
}

// AuditPublicKey is the raw X25519 key that ledger epochs are sealed to. It is
// readable while locked; Unlock fails if it is not the sealed key's own.
func (v *Vault) AuditPublicKey() []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return bytes.Clone(v.file.header.AuditPublicKey)
}

// Unlock opens the vault with the unlock key of one slot. On an unlocked
// vault it only checks the key.
func (v *Vault) Unlock(slot string, unlockKey []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	o, err := v.file.unlock(slot, unlockKey)
	if err != nil {
		return fmt.Errorf("unlocking with the %s slot: %w", slot, err)
	}
	if v.open != nil {
		o.destroy()
		return nil
	}
	v.open = o
	return nil
}

// Lock forgets every key, and nothing is lent any more. A value that Use has
// lent already stays with its borrower until that call ends.
func (v *Vault) Lock() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open == nil {
		return
	}
	v.open.destroy()
	v.open = nil
}

// Locked reports whether the vault is locked.
func (v *Vault) Locked() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.open == nil
}

// AuditPrivateKey returns a copy of the raw audit private key, for the caller
// to wipe.
func (v *Vault) AuditPrivateKey() ([]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	return bytes.Clone(v.open.keys.auditPrivate()), nil
}

// Subkey derives 32 bytes for one purpose from the vault's random root key:
// the same for the life of the vault, for the caller to wipe.
func (v *Vault) Subkey(purpose string) ([]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	return expand(v.open.keys.root(), "yett-vault/1 subkey "+purpose)
}

// unlock opens the payload with one slot's unlock key.
func (f *file) unlock(name string, unlockKey []byte) (*opened, error) {
	s := f.header.slot(name)
	if s == nil {
		return nil, fmt.Errorf("no such slot: %w", ErrWrongKey)
	}
	dataKey, err := s.unwrap(unlockKey)
	if err != nil {
		return nil, ErrWrongKey
	}
	defer clear(dataKey)
	keys, c, err := f.openPayload(dataKey)
	if err != nil {
		return nil, damaged(err)
	}
	valueKey, err := expand(keys.root(), "yett-vault/1 values")
	if err != nil {
		keys.destroy()
		return nil, err
	}
	defer clear(valueKey)
	values := newLockedMemory(keySize)
	copy(values.bytes, valueKey)
	return &opened{keys: keys, values: values, content: c}, nil
}

func damaged(cause error) error { return fmt.Errorf("%w: %w", ErrDamaged, cause) }
