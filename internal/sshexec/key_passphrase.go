package sshexec

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"slices"

	"golang.org/x/text/unicode/norm"
)

// UnlockKey returns the one private key in secret without its passphrase, in
// PEM, as ParseKey reads it: OpenSSH (AES in CTR, CBC and GCM, ChaCha20-Poly1305,
// triple DES), PKCS #8 (PBES2 with PBKDF2 or scrypt) and PEM with a DEK-Info
// header. The passphrase may be empty; one that is not ASCII is tried as it is
// and in both normal forms, since keyboards and systems differ in them.
//
// Everything happens in memory, which the caller clears. How much work and
// memory a file may ask for is bounded. Every error is a *KeyError; a key that is
// not encrypted is returned as it is.
func UnlockKey(secret, passphrase []byte) ([]byte, error) {
	_, err := ParseKey(secret)
	if err == nil {
		return bytes.Clone(secret), nil
	}
	if e, ok := err.(*KeyError); !ok || e.Reason != KeyEncrypted {
		return nil, err
	}
	block := encryptedBlock(secret)
	if block == nil {
		return nil, &KeyError{KeyDamaged}
	}
	defer clear(block.Bytes)
	var open func(passphrase []byte) ([]byte, error)
	switch {
	case block.Type == "OPENSSH PRIVATE KEY":
		open, err = openOpenSSH(block.Bytes)
	case block.Type == "ENCRYPTED PRIVATE KEY":
		open, err = openPKCS8(block.Bytes)
	default:
		open, err = openLegacy(block)
	}
	if err != nil {
		return nil, err
	}
	for _, spelling := range spellings(passphrase) {
		key, err := open(spelling)
		clear(spelling)
		if e, ok := err.(*KeyError); ok && e.Reason == KeyPassphrase {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := ParseKey(key); err != nil {
			clear(key)
			return nil, err
		}
		return key, nil
	}
	return nil, &KeyError{KeyPassphrase}
}

// encryptedBlock is the block of the private key, behind curve parameters or
// whatever else ParseKey passes over.
func encryptedBlock(secret []byte) *pem.Block {
	for rest := secret; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			return nil
		}
		if reason, private := blockReason(block); private || reason == KeyEncrypted {
			return block
		}
		clear(block.Bytes)
		rest = after
	}
}

// spellings are a passphrase as it is and in the normal forms C and D.
func spellings(passphrase []byte) [][]byte {
	all := [][]byte{bytes.Clone(passphrase)}
	for _, form := range []norm.Form{norm.NFC, norm.NFD} {
		if p := form.Bytes(passphrase); !slices.ContainsFunc(all, func(q []byte) bool { return bytes.Equal(p, q) }) {
			all = append(all, bytes.Clone(p))
		}
	}
	return all
}

// openLegacy is for PEM as OpenSSL wrote it before PKCS #8.
func openLegacy(block *pem.Block) (func([]byte) ([]byte, error), error) {
	if !x509.IsEncryptedPEMBlock(block) { //nolint:staticcheck // the format is weak, its owner wants to leave it
		return nil, &KeyError{KeyDamaged}
	}
	return func(passphrase []byte) ([]byte, error) {
		der, err := x509.DecryptPEMBlock(block, passphrase) //nolint:staticcheck // likewise
		defer clear(der)
		switch {
		case err == x509.IncorrectPasswordError:
			return nil, &KeyError{KeyPassphrase}
		case err != nil: // an unknown cipher, or a header that makes no sense
			return nil, &KeyError{KeyUnsupported}
		case !wholeSequence(der): // the padding fits one wrong passphrase in 256
			return nil, &KeyError{KeyPassphrase}
		}
		return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der}), nil
	}, nil
}

// wholeSequence reports whether der is one ASN.1 sequence and nothing behind it.
func wholeSequence(der []byte) bool {
	var v asn1.RawValue
	rest, err := asn1.Unmarshal(der, &v)
	return err == nil && len(rest) == 0 && v.Tag == asn1.TagSequence && v.IsCompound
}
