package approval

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Touch ID key is an Ed25519 key of the person's Mac that signs after a
// finger. The finger is asked for by a program, not by the key: see
// docs/macos.md for who else could use it. So it proves decisions and opens
// reading, and nothing that a passkey or the passphrase is wanted for.

// SeedSize is the size of a Touch ID key's private half.
const SeedSize = ed25519.SeedSize

// ErrTouchID is wrapped where the signature of a Touch ID key is not accepted.
var ErrTouchID = errors.New("the Touch ID signature does not hold")

// coseEd25519 stands before the 32 bytes of an Ed25519 public key in its COSE
// form (RFC 9053): {1: 1 (OKP), 3: -8 (EdDSA), -1: 6 (Ed25519), -2: key}.
var coseEd25519 = []byte{0xa4, 0x01, 0x01, 0x03, 0x27, 0x20, 0x06, 0x21, 0x58, 0x20}

// TouchIDKey is the public half of a Touch ID key, as a passkey's is kept: its
// COSE form, and as its id the SHA-256 of that.
func TouchIDKey(public []byte) Passkey {
	key := append(bytes.Clone(coseEd25519), public...)
	return Passkey{ID: keyID(key), Key: key}
}

func keyID(key []byte) []byte {
	sum := sha256.Sum256(key)
	return sum[:]
}

// SignTouchID signs the challenge of a message with the key of this seed. It
// returns the public half too.
func SignTouchID(seed, message []byte) (k Passkey, signature Bytes, err error) {
	if len(seed) != SeedSize {
		return k, nil, fmt.Errorf("a Touch ID key of %d bytes", len(seed))
	}
	private := ed25519.NewKeyFromSeed(seed)
	defer clear(private)
	return TouchIDKey(private[SeedSize:]), ed25519.Sign(private, Challenge(message)), nil
}

// Ed25519 is the key in its 32 bytes; nil of a key of another kind.
func (k Passkey) Ed25519() []byte {
	public, ok := bytes.CutPrefix(k.Key, coseEd25519)
	if !ok || len(public) != ed25519.PublicKeySize {
		return nil
	}
	return public
}

// VerifyTouchID checks a signature over the challenge of a message.
func (k Passkey) VerifyTouchID(message, signature []byte) error {
	public := k.Ed25519()
	if public == nil {
		return fmt.Errorf("%w: its key is no Ed25519 key", ErrTouchID)
	}
	if !ed25519.Verify(public, Challenge(message), signature) {
		return fmt.Errorf("%w: it is of another key, or over another decision, card or challenge", ErrTouchID)
	}
	return nil
}

// EnrolTouchIDMessage returns the bytes whose challenge a new Touch ID key signs.
//
//	"yett-enrol-touchid-v1\n" name "\n" nonce
func EnrolTouchIDMessage(name, nonce string) []byte {
	return fmt.Appendf(nil, "yett-enrol-touchid-v1\n%s\n%s", field(name), field(nonce))
}
