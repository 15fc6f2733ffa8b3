package bodies

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

const (
	magic      = "yett body 1\n"
	saltSize   = 32
	headerSize = len(magic) + saltSize
	chunkSize  = 64 << 10
	tagSize    = 16
	sealedSize = chunkSize + tagSize
)

// sealer seals or opens the chunks of one body.
type sealer struct{ aead cipher.AEAD }

// sealerFor derives the key of one body from the store's.
func (s *Store) sealerFor(file string, salt []byte) (sealer, error) {
	s.keyMu.RLock()
	defer s.keyMu.RUnlock()
	if s.key == nil {
		return sealer{}, ErrLocked
	}
	key, err := hkdf.Expand(sha256.New, s.key, "yett-bodies/2 "+file+string(salt), 32)
	if err != nil {
		return sealer{}, err
	}
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, err
	}
	aead, err := cipher.NewGCM(block)
	return sealer{aead}, err
}

func newSalt() []byte {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails: crypto/rand aborts the process instead
	return salt
}

func nonce(number int64, last bool) []byte {
	n := make([]byte, 12)
	binary.BigEndian.PutUint64(n[3:11], uint64(number))
	if last {
		n[11] = 1
	}
	return n
}

// seal appends the sealed chunk to dst.
func (s sealer) seal(dst, plain []byte, number int64, last bool) []byte {
	return s.aead.Seal(dst, nonce(number, last), plain, nil)
}

// open returns the chunk in the place of its sealed form.
func (s sealer) open(sealed []byte, number int64, last bool) ([]byte, error) {
	plain, err := s.aead.Open(sealed[:0], nonce(number, last), sealed, nil)
	if err != nil {
		return nil, ErrDamaged
	}
	return plain, nil
}

// layout says what a file of some size holds: how many chunks, and how many
// bytes in the clear.
func layout(fileSize int64) (chunks, plain int64, ok bool) {
	sealed := fileSize - int64(headerSize)
	if sealed < tagSize {
		return 0, 0, false
	}
	chunks = (sealed + sealedSize - 1) / sealedSize
	plain = sealed - chunks*tagSize
	// Only a body without a byte has an empty chunk.
	if rest := sealed - (chunks-1)*sealedSize; rest < tagSize || chunks > 1 && rest == tagSize {
		return 0, 0, false
	}
	return chunks, plain, true
}
