package sshexec

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"hash"

	"golang.org/x/crypto/pbkdf2"
	"golang.org/x/crypto/scrypt"
)

// Bounds of what an encrypted PKCS #8 file may ask for. OpenSSL and ssh-keygen
// write 2048 iterations, careful people some 600,000.
const (
	maxIterations = 2_000_000
	maxScrypt     = 256 << 20 // bytes
)

// Forms of RFC 8018 and RFC 7914.
type (
	encryptedKeyInfo struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	pbes2Parameters struct {
		KDF, Cipher pkix.AlgorithmIdentifier
	}
	pbkdf2Parameters struct {
		Salt       []byte
		Iterations int
		KeyLength  int                      `asn1:"optional"`
		PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
	}
	scryptParameters struct {
		Salt      []byte
		N, R, P   int
		KeyLength int `asn1:"optional"`
	}
)

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	oidScrypt = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11591, 4, 11}
)

// pbkdf2Hashes are the pseudorandom functions, by object identifier; none is
// HMAC with SHA-1.
var pbkdf2Hashes = map[string]func() hash.Hash{
	"":                    sha1.New,
	"1.2.840.113549.2.7":  sha1.New,
	"1.2.840.113549.2.8":  sha256.New224,
	"1.2.840.113549.2.9":  sha256.New,
	"1.2.840.113549.2.10": sha512.New384,
	"1.2.840.113549.2.11": sha512.New,
}

var pkcs8Ciphers = map[string]struct {
	key int
	new func([]byte) (cipher.Block, error)
}{
	"2.16.840.1.101.3.4.1.2":  {16, aes.NewCipher},
	"2.16.840.1.101.3.4.1.22": {24, aes.NewCipher},
	"2.16.840.1.101.3.4.1.42": {32, aes.NewCipher},
	"1.2.840.113549.3.7":      {24, des.NewTripleDESCipher},
}

func openPKCS8(der []byte) (func(passphrase []byte) ([]byte, error), error) {
	var info encryptedKeyInfo
	if !parses(der, &info) {
		return nil, &KeyError{KeyDamaged}
	}
	if !info.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, &KeyError{KeyUnsupported}
	}
	var p pbes2Parameters
	if !parses(info.Algorithm.Parameters.FullBytes, &p) {
		return nil, &KeyError{KeyDamaged}
	}
	c, known := pkcs8Ciphers[p.Cipher.Algorithm.String()]
	if !known {
		return nil, &KeyError{KeyUnsupported}
	}
	derive, err := pkcs8KDF(p.KDF, c.key)
	if err != nil {
		return nil, err
	}
	var iv []byte
	block, err := c.new(make([]byte, c.key))
	if err != nil || !parses(p.Cipher.Parameters.FullBytes, &iv) || len(iv) != block.BlockSize() ||
		len(info.Data) == 0 || len(info.Data)%block.BlockSize() != 0 {
		return nil, &KeyError{KeyDamaged}
	}
	return func(passphrase []byte) ([]byte, error) {
		k, err := derive(passphrase)
		defer clear(k)
		if err != nil {
			return nil, &KeyError{KeyUnsupported}
		}
		block, err := c.new(k)
		if err != nil {
			return nil, &KeyError{KeyUnsupported}
		}
		plain := decryptBlocks(block, iv, info.Data)
		defer clear(plain)
		key := unpadded(plain, block.BlockSize())
		if key == nil || !wholeSequence(key) {
			return nil, &KeyError{KeyPassphrase}
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), nil
	}, nil
}

// pkcs8KDF reads how the key is derived, within the bounds.
func pkcs8KDF(kdf pkix.AlgorithmIdentifier, length int) (func(passphrase []byte) ([]byte, error), error) {
	switch {
	case kdf.Algorithm.Equal(oidPBKDF2):
		var p pbkdf2Parameters
		if !parses(kdf.Parameters.FullBytes, &p) || p.Iterations < 1 {
			return nil, &KeyError{KeyDamaged}
		}
		h := pbkdf2Hashes[p.PRF.Algorithm.String()]
		switch {
		case h == nil, p.KeyLength != 0 && p.KeyLength != length:
			return nil, &KeyError{KeyUnsupported}
		case p.Iterations > maxIterations:
			return nil, &KeyError{KeyCostly}
		}
		return func(passphrase []byte) ([]byte, error) {
			return pbkdf2.Key(passphrase, p.Salt, p.Iterations, length, h), nil
		}, nil
	case kdf.Algorithm.Equal(oidScrypt):
		var p scryptParameters
		switch {
		case !parses(kdf.Parameters.FullBytes, &p) || p.N < 2 || p.R < 1 || p.P < 1:
			return nil, &KeyError{KeyDamaged}
		case p.KeyLength != 0 && p.KeyLength != length:
			return nil, &KeyError{KeyUnsupported}
		case p.N > maxScrypt || p.R > 64 || p.P > 16 || p.N > maxScrypt/(128*p.R):
			return nil, &KeyError{KeyCostly}
		}
		return func(passphrase []byte) ([]byte, error) {
			return scrypt.Key(passphrase, p.Salt, p.N, p.R, p.P, length)
		}, nil
	}
	return nil, &KeyError{KeyUnsupported}
}

// parses reads DER into v and wants nothing behind it.
func parses(der []byte, v any) bool {
	rest, err := asn1.Unmarshal(der, v)
	return err == nil && len(rest) == 0
}

// unpadded returns plain without its padding (RFC 8018, section 6.1.1), or nil.
func unpadded(plain []byte, block int) []byte {
	n := int(plain[len(plain)-1])
	if n < 1 || n > block || n > len(plain) {
		return nil
	}
	for _, b := range plain[len(plain)-n:] {
		if int(b) != n {
			return nil
		}
	}
	return plain[:len(plain)-n]
}
