package ledger

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

const (
	epochInfo   = "yett ledger epoch v1"
	confirmInfo = "yett ledger confirmation v1"
)

func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.DHKEM(ecdh.X25519()), hpke.HKDFSHA256(), hpke.AES256GCM()
}

// GenerateAuditKey makes the key pair that a vault keeps for its ledger.
func GenerateAuditKey() (private, public []byte, err error) {
	kem, _, _ := suite()
	k, err := kem.GenerateKey()
	if err != nil {
		return nil, nil, fmt.Errorf("generating audit key: %w", err)
	}
	if private, err = k.Bytes(); err != nil {
		return nil, nil, fmt.Errorf("generating audit key: %w", err)
	}
	return private, k.PublicKey().Bytes(), nil
}

// recipient is a public key that epoch keys are sealed to.
type recipient struct {
	id  []byte
	key hpke.PublicKey
}

func newRecipient(public []byte) (*recipient, error) {
	kem, _, _ := suite()
	key, err := kem.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("reading audit public key: %w", err)
	}
	return &recipient{recipientID(public), key}, nil
}

func recipientID(public []byte) []byte {
	h := sha256.Sum256(public)
	return h[:16]
}

// epoch is a row key in use. The AEAD takes a random nonce for each row, so
// that a row number given twice (after a failed commit) never repeats one.
// 2^32 rows in one run of a broker are out of reach.
type epoch struct {
	id          int64
	rows        cipher.AEAD
	recipient   []byte
	enc, sealed []byte
}

func newEpoch(id int64, to *recipient) (*epoch, error) {
	key := make([]byte, 32)
	defer clear(key)
	rand.Read(key)
	rows, err := rowAEAD(key)
	if err != nil {
		return nil, fmt.Errorf("making epoch key: %w", err)
	}
	_, kdf, aead := suite()
	enc, sender, err := hpke.NewSender(to.key, kdf, aead, []byte(epochInfo))
	if err != nil {
		return nil, fmt.Errorf("sealing epoch key: %w", err)
	}
	sealed, err := sender.Seal(epochAAD(id), key)
	if err != nil {
		return nil, fmt.Errorf("sealing epoch key: %w", err)
	}
	return &epoch{id, rows, to.id, enc, sealed}, nil
}

// sealOverhead is the nonce before a sealed row and the tag behind it.
const sealOverhead = 12 + 16

// seal seals a row in the place of its plaintext, if there is room.
func (e *epoch) seal(n int64, plain []byte) []byte {
	return e.rows.Seal(plain[:0], nil, plain, rowAAD(n, e.id))
}

func rowAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func epochAAD(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// Opener opens sealed rows with the audit private key. It may be used by
// several goroutines.
type Opener struct {
	recipient []byte
	key       hpke.PrivateKey
	confirms  []byte // key of confirmations

	mu     sync.Mutex
	epochs map[string]cipher.AEAD // by enc, which no two epochs share
}

// NewOpener takes the X25519 private key; the caller still owns its bytes.
func NewOpener(auditPrivateKey []byte) (*Opener, error) {
	kem, _, _ := suite()
	key, err := kem.NewPrivateKey(auditPrivateKey)
	if err != nil {
		return nil, errors.New("reading audit private key: not an X25519 private key")
	}
	confirms, err := hkdf.Key(sha256.New, auditPrivateKey, nil, confirmInfo, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving from audit private key: %w", err)
	}
	return &Opener{recipient: recipientID(key.PublicKey().Bytes()), key: key, confirms: confirms,
		epochs: map[string]cipher.AEAD{}}, nil
}

// confirmation is what only somebody with the audit private key can write
// beside an epoch. It covers the sealed key.
func (o *Opener) confirmation(id int64, enc, sealed []byte) []byte {
	h := hmac.New(sha256.New, o.confirms)
	for _, part := range [][]byte{epochAAD(id), enc, sealed} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

// epoch opens one row key.
func (o *Opener) epoch(id int64, enc, sealed []byte) (cipher.AEAD, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cacheKey := fmt.Sprintf("%d %x %x", id, enc, sealed)
	if a := o.epochs[cacheKey]; a != nil {
		return a, nil
	}
	_, kdf, aead := suite()
	r, err := hpke.NewRecipient(enc, o.key, kdf, aead, []byte(epochInfo))
	if err != nil {
		return nil, fmt.Errorf("opening epoch %d: %w", id, err)
	}
	key, err := r.Open(epochAAD(id), sealed)
	if err != nil {
		return nil, fmt.Errorf("opening epoch %d: %w", id, err)
	}
	defer clear(key)
	a, err := rowAEAD(key)
	if err != nil {
		return nil, fmt.Errorf("opening epoch %d: %w", id, err)
	}
	o.epochs[cacheKey] = a
	return a, nil
}

func openRow(a cipher.AEAD, n, epoch int64, sealed []byte) ([]byte, error) {
	plain, err := a.Open(nil, nil, sealed, rowAAD(n, epoch))
	if err != nil {
		return nil, fmt.Errorf("row %d does not open under the key of epoch %d", n, epoch)
	}
	return plain, nil
}
