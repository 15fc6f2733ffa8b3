package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/yett-broker/yett/internal/durable"
)

// minPassphrase is in characters.
const minPassphrase = 8

// ErrPassphraseShort: a passphrase of fewer than 8 characters.
var ErrPassphraseShort = fmt.Errorf("a passphrase needs at least %d characters", minPassphrase)

// CheckPassphrase refuses a new passphrase that is too short to protect a file
// that others may come to read.
func CheckPassphrase(passphrase []byte) error {
	normal := norm.NFC.Append(make([]byte, 0, 3*len(passphrase)), passphrase...)
	defer clear(normal)
	if utf8.RuneCount(normal) < minPassphrase {
		return ErrPassphraseShort
	}
	return nil
}

// Create makes a new vault in dir, which is made if it is not there, and
// returns the recovery code as printed. The code is kept nowhere.
func Create(dir string, passphrase []byte) (recoveryCode string, err error) {
	if err := CheckPassphrase(passphrase); err != nil {
		return "", err
	}
	if err := makeDir(dir); err != nil {
		return "", fmt.Errorf("making the vault's directory: %w", err)
	}
	unlock, err := lockDir(dir, lockWait)
	if err != nil {
		return "", fmt.Errorf("creating the vault: %w", err)
	}
	defer unlock()
	path := filepath.Join(dir, FileName)
	for _, p := range []string{path, path + durable.Previous} {
		if _, err := os.Lstat(p); err == nil {
			return "", fmt.Errorf("%w: %s", ErrExists, p)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	code := newRecoveryCode()
	defer clear(code)
	f, err := firstFile(passphrase, code)
	if err != nil {
		return "", fmt.Errorf("creating the vault: %w", err)
	}
	if err := writeFile(path, f.raw, false); err != nil {
		return "", fmt.Errorf("creating the vault: %w", err)
	}
	return printedRecovery(code), nil
}

// firstFile is generation 1: two slots, fresh keys, nothing else.
func firstFile(passphrase, code []byte) (*file, error) {
	dataKey := randomBytes(keySize)
	defer clear(dataKey)
	private, public, err := newAuditKey()
	if err != nil {
		return nil, err
	}
	defer clear(private)

	h := header{Generation: 1, AuditPublicKey: public}
	keys := newKeyring(dataKey, make([]byte, keyringSize(2)-keySize))
	defer keys.destroy()
	copyRandom(keys.root())
	copy(keys.auditPrivate(), private)
	for i, s := range []struct {
		name   string
		secret []byte
	}{{SlotPassphrase, passphrase}, {SlotRecovery, code}} {
		kdf := NewKDF()
		derived, err := Derive(s.secret, kdf)
		if err != nil {
			return nil, err
		}
		slot, err := newSlot(s.name, kdf, derived.Unlock)
		copy(keys.approval(i), derived.Approval)
		derived.Wipe()
		if err == nil {
			err = slot.wrap(dataKey)
		}
		if err != nil {
			return nil, err
		}
		h.Slots = append(h.Slots, slot)
	}
	return sealContent(h, keys, &content{})
}

func copyRandom(into []byte) {
	b := randomBytes(len(into))
	copy(into, b)
	clear(b)
}
