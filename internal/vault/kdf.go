package vault

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// Argon2id costs. The parameters stand in a header that anybody may have
// written, so they are checked before memory is taken: below the minima a fake
// vault could harvest keys that are cheap to guess back into the passphrase,
// above the maxima it could exhaust the machine.
const (
	minMemoryKiB, maxMemoryKiB = 19 << 10, 1 << 20
	minTime, maxTime           = 2, 16
	minThreads, maxThreads     = 1, 16
	minSalt, maxSalt           = 16, 64
)

const keySize = 32

// cost is what new slots get: 100 to 200 ms on a 2-core machine.
var cost = KDF{Time: 3, MemoryKiB: 64 << 10, Threads: 1}

// ErrKDF: key derivation parameters outside what is accepted.
var ErrKDF = errors.New("key derivation parameters out of bounds")

// FormNFC: the passphrase is brought into Unicode's normal form C first, since
// one keyboard gives é as one character and another as two.
const FormNFC = "nfc"

// KDF is the Argon2id parameters of one slot. Slots that were made before
// passphrases were normalised have no Form and take the bytes as they come.
type KDF struct {
	Salt      []byte `json:"salt"`
	Time      uint32 `json:"time"`
	MemoryKiB uint32 `json:"memory_kib"`
	Threads   uint8  `json:"threads"`
	Form      string `json:"form,omitempty"`
}

// NewKDF returns today's costs with a fresh salt.
func NewKDF() KDF {
	k := cost
	k.Salt = randomBytes(minSalt)
	k.Form = FormNFC
	return k
}

func (k KDF) check() error {
	switch {
	case len(k.Salt) < minSalt || len(k.Salt) > maxSalt:
		return fmt.Errorf("%w: %d bytes of salt", ErrKDF, len(k.Salt))
	case k.Time < minTime || k.Time > maxTime:
		return fmt.Errorf("%w: %d passes", ErrKDF, k.Time)
	case k.MemoryKiB < minMemoryKiB || k.MemoryKiB > maxMemoryKiB:
		return fmt.Errorf("%w: %d KiB of memory", ErrKDF, k.MemoryKiB)
	case k.Threads < minThreads || k.Threads > maxThreads:
		return fmt.Errorf("%w: %d threads", ErrKDF, k.Threads)
	case k.Form != "" && k.Form != FormNFC:
		return fmt.Errorf("%w: an unknown form of the passphrase", ErrKDF)
	}
	return nil
}

// Keys is what a passphrase or recovery code turns into.
type Keys struct {
	Unlock   []byte // opens the vault
	Approval []byte // proves decisions, see Proof
}

// Wipe clears both keys.
func (k *Keys) Wipe() {
	clear(k.Unlock)
	clear(k.Approval)
}

// Derive turns a passphrase, or a recovery code in its normal form (see
// NormalizeRecovery), into the keys of a slot. It is slow by design.
func Derive(passphrase []byte, k KDF) (*Keys, error) {
	if err := k.check(); err != nil {
		return nil, fmt.Errorf("deriving keys: %w", err)
	}
	if k.Form == FormNFC {
		passphrase = norm.NFC.Append(make([]byte, 0, 3*len(passphrase)), passphrase...) // NFC grows no text beyond that
		defer clear(passphrase)
	}
	master := make([]byte, keySize)
	defer clear(master)
	secretly(func() {
		m := argon2.IDKey(passphrase, k.Salt, k.Time, k.MemoryKiB, k.Threads, keySize)
		copy(master, m)
		clear(m)
	})
	unlock, err := expand(master, "yett-vault/1 unlock")
	if err != nil {
		return nil, err
	}
	approval, err := expand(master, "yett-vault/1 approval")
	if err != nil {
		return nil, err
	}
	return &Keys{Unlock: unlock, Approval: approval}, nil
}

// expand derives one key from a key that is already uniform, so HKDF's extract
// step is left out.
func expand(key []byte, purpose string) ([]byte, error) {
	derived := make([]byte, keySize)
	var err error
	secretly(func() {
		var k []byte
		k, err = hkdf.Expand(sha256.New, key, purpose, keySize)
		copy(derived, k)
		clear(k)
	})
	return derived, err
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: the program ends instead
	return b
}
