package vault

import (
	"bytes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/yett-broker/yett/internal/durable"
)

const (
	magic    = "yett-vault "
	version  = "2\n" // what is written
	version1 = "1\n" // what is read too

	maxFile   = 16 << 20
	maxHeader = 64 << 10
	maxSlots  = 8

	nonceSize = chacha20poly1305.NonceSizeX
	boxSize   = nonceSize + keySize + chacha20poly1305.Overhead // one sealed key
)

// file is one generation of the vault file, taken apart but not opened.
type file struct {
	raw    []byte
	sum    [sha256.Size]byte // of raw, all of it
	header header
	bound  []byte // of raw: what the payload is bound to
	sealed []byte // of raw: nonce and payload
}

// header is what can be read of a locked vault.
type header struct {
	Generation     uint64       `json:"generation"`
	Slots          []sealedSlot `json:"slots"`
	AuditPublicKey []byte       `json:"audit_public_key"`
}

// sealedSlot has the data key, wrapped to Public, or, where there is no public
// key, as version 1 did under the unlock key itself.
type sealedSlot struct {
	Name    string `json:"name"`
	KDF     KDF    `json:"kdf"`
	Public  []byte `json:"public,omitempty"`
	Wrapped []byte `json:"wrapped"`
}

func (h *header) slot(name string) *sealedSlot {
	for i := range h.Slots {
		if h.Slots[i].Name == name {
			return &h.Slots[i]
		}
	}
	return nil
}

func readFile(path string) (*file, error) {
	raw, err := durable.ReadFile(path, maxFile)
	if errors.Is(err, durable.ErrTooLarge) {
		return nil, damaged(err)
	}
	if err != nil {
		return nil, err
	}
	return parseFile(raw)
}

// parseFile takes a vault file apart. Its errors are ErrDamaged or ErrVersion.
func parseFile(raw []byte) (*file, error) {
	body, ok := bytes.CutPrefix(raw, []byte(magic))
	if !ok {
		return nil, damaged(errors.New("it does not begin like a vault"))
	}
	if len(body) < sha256.Size {
		return nil, damaged(errors.New("it is cut short"))
	}
	end := len(raw) - sha256.Size
	if sum := sha256.Sum256(raw[:end]); !bytes.Equal(sum[:], raw[end:]) {
		return nil, damaged(errors.New("its checksum is wrong"))
	}
	first := bytes.HasPrefix(body, []byte(version1))
	if !first && !bytes.HasPrefix(body, []byte(version)) {
		return nil, ErrVersion // whole, but of a later release
	}
	const start = len(magic) + len(version) + 4
	if end < start {
		return nil, damaged(errors.New("it is cut short"))
	}
	n := binary.BigEndian.Uint32(raw[start-4:])
	if n > maxHeader || int(n) > end-start {
		return nil, damaged(errors.New("its header is longer than allowed"))
	}
	headerEnd := start + int(n)
	if end-headerEnd < nonceSize+chacha20poly1305.Overhead {
		return nil, damaged(errors.New("its payload is cut short"))
	}
	h, err := parseHeader(raw[start:headerEnd])
	if err == nil && first {
		err = h.checkVersion1()
	}
	if err != nil {
		return nil, damaged(fmt.Errorf("reading its header: %w", err))
	}
	return &file{
		raw: raw, sum: sha256.Sum256(raw), header: *h,
		bound: raw[:headerEnd], sealed: raw[headerEnd:end],
	}, nil
}

// parseHeader accepts exactly what appendHeader writes.
func parseHeader(b []byte) (*header, error) {
	var h header
	if err := decodeExact(b, &h); err != nil {
		return nil, err
	}
	if h.Generation == 0 {
		return nil, errors.New("generation 0")
	}
	if len(h.AuditPublicKey) != keySize {
		return nil, errors.New("audit key of a wrong size")
	}
	if len(h.Slots) == 0 || len(h.Slots) > maxSlots {
		return nil, fmt.Errorf("%d slots", len(h.Slots))
	}
	for i, s := range h.Slots {
		if s.Name != SlotPassphrase && s.Name != SlotRecovery && s.Name != SlotKeychain {
			return nil, errors.New("a slot of an unknown name")
		}
		if h.slot(s.Name) != &h.Slots[i] {
			return nil, errors.New("two slots of one name")
		}
		if err := s.checkKDF(); err != nil {
			return nil, err
		}
		if err := s.checkSizes(); err != nil {
			return nil, err
		}
	}
	return &h, nil
}

func (s *sealedSlot) checkKDF() error {
	if s.Name == SlotKeychain {
		return s.KDF.checkShare()
	}
	return s.KDF.check()
}

// checkVersion1 refuses what version 1 did not have.
func (h *header) checkVersion1() error {
	for _, s := range h.Slots {
		if s.Public != nil || s.KDF.Form != "" {
			return errors.New("a slot of a later version")
		}
	}
	return nil
}

// decodeExact decodes JSON that has exactly one encoding: what json.Marshal
// makes of the value. Encoding it again and comparing refuses unknown,
// duplicate, case-folded and missing members, spacing, and trailing data, all
// of which encoding/json would let pass.
func decodeExact(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return errors.New("not the expected JSON") // the decoder's error may quote the text
	}
	again, err := json.Marshal(into)
	if err != nil {
		return errors.New("not the expected JSON")
	}
	if !bytes.Equal(again, b) {
		return errors.New("not in its one encoding")
	}
	return nil
}

// sealFile makes a generation: h in the clear, the payload bound to it.
func sealFile(h header, dataKey, payload []byte) (*file, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeader {
		return nil, errors.New("the header is longer than allowed")
	}
	raw := append([]byte(magic+version), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(raw[len(raw)-4:], uint32(len(text)))
	raw = append(raw, text...)
	box, err := seal(dataKey, payload, raw)
	if err != nil {
		return nil, err
	}
	raw = append(raw, box...)
	sum := sha256.Sum256(raw)
	raw = append(raw, sum[:]...)
	if len(raw) > maxFile {
		return nil, ErrTooLarge
	}
	return parseFile(raw)
}

// seal encrypts under key with a random nonce, which it puts in front.
func seal(key, plain, associated []byte) (box []byte, err error) {
	box = make([]byte, nonceSize, nonceSize+len(plain)+chacha20poly1305.Overhead)
	copy(box, randomBytes(nonceSize))
	secretly(func() {
		var aead cipher.AEAD
		if aead, err = chacha20poly1305.NewX(key); err == nil {
			box = aead.Seal(box, box, plain, associated)
		}
	})
	if err != nil {
		return nil, err
	}
	return box, nil
}

// open undoes seal.
func open(key, box, associated []byte) (plain []byte, err error) {
	if len(box) < nonceSize+chacha20poly1305.Overhead {
		return nil, errors.New("cut short")
	}
	plain = make([]byte, 0, len(box)-nonceSize-chacha20poly1305.Overhead)
	secretly(func() {
		var aead cipher.AEAD
		if aead, err = chacha20poly1305.NewX(key); err == nil {
			plain, err = aead.Open(plain, box[:nonceSize], box[nonceSize:], associated)
		}
	})
	if err != nil {
		return nil, err
	}
	return plain, nil
}
