package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/durable"
)

// minPassphrase is in characters.
const minPassphrase = 8

// ErrPassphraseShort: a passphrase of fewer than 8 characters.
var ErrPassphraseShort = fmt.Errorf("a passphrase needs at least %d characters", minPassphrase)

// Create makes a new vault in dir, which is made if it is not there, and
// returns the recovery code as printed. The code is kept nowhere.
func Create(dir string, passphrase []byte) (recoveryCode string, err error) {
	if utf8.RuneCount(passphrase) < minPassphrase {
		return "", ErrPassphraseShort
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
		wrapped, err := seal(derived.Unlock, dataKey, slotData(s.name))
		copy(keys.approval(i), derived.Approval)
		derived.Wipe()
		if err != nil {
			return nil, err
		}
		h.Slots = append(h.Slots, sealedSlot{Name: s.name, KDF: kdf, Wrapped: wrapped})
	}
	return sealContent(h, keys, &content{})
}

func copyRandom(into []byte) {
	b := randomBytes(len(into))
	copy(into, b)
	clear(b)
}

// makeDir makes dir and what is missing above it, 0700 whatever the umask. An
// empty directory of the account is closed to others; one with something in it
// that is open to others may be somebody's home, and is refused.
func makeDir(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if parent := filepath.Dir(dir); parent != dir {
			if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
				if err := makeDir(parent); err != nil {
					return err
				}
			}
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err = os.Lstat(dir)
	}
	if err != nil {
		return err
	}
	if err := ownDir(dir, info); err != nil {
		return err
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if info.Mode().Perm()&0o077 != 0 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if len(entries) != 0 {
			return checkMode(dir, info)
		}
	}
	return os.Chmod(dir, 0o700)
}

// checkDir refuses a directory that others could put files into or look into.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := ownDir(dir, info); err != nil {
		return err
	}
	return checkMode(dir, info)
}

func ownDir(dir string, info fs.FileInfo) error {
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another account", dir)
	}
	return nil
}

func checkMode(dir string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is open to others (mode %#o)", dir, info.Mode().Perm())
	}
	return nil
}
