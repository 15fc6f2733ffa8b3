package sshexec

import (
	"crypto/sha512"
	"encoding/binary"
	"errors"

	"golang.org/x/crypto/blowfish"
)

// bcryptPBKDF is the function by which OpenSSH makes the key of a key file from
// a passphrase: bcrypt_pbkdf(3) of OpenBSD, a PBKDF2 over bcrypt that puts its
// output in an order of its own. golang.org/x/crypto has it too, but not for
// others to call.
func bcryptPBKDF(passphrase, salt []byte, rounds, length int) ([]byte, error) {
	if len(passphrase) == 0 || len(salt) == 0 || rounds < 1 || length < 1 || length > 1024 {
		return nil, errors.New("deriving a key: out of range")
	}
	blocks := (length + bcryptSize - 1) / bcryptSize
	key := make([]byte, blocks*bcryptSize)
	pass := sha512.Sum512(passphrase)
	defer clear(pass[:])
	for n := range blocks {
		seed := sha512.Sum512(binary.BigEndian.AppendUint32(append([]byte{}, salt...), uint32(n+1)))
		last, err := bcryptHash(pass[:], seed[:])
		if err != nil {
			return nil, err
		}
		sum := last
		for range rounds - 1 {
			seed = sha512.Sum512(last[:])
			if last, err = bcryptHash(pass[:], seed[:]); err != nil {
				return nil, err
			}
			for i := range sum {
				sum[i] ^= last[i]
			}
		}
		for i, b := range sum { // byte i of block n: no prefix of the output is one block
			key[i*blocks+n] = b
		}
		clear(sum[:])
	}
	clear(key[length:])
	return key[:length], nil
}

// bcryptSize is the length of one hash.
const bcryptSize = 32

// bcryptHash is bcrypt with 64 rounds of keys of 64 bytes, over a text of its own.
func bcryptHash(pass, salt []byte) (out [bcryptSize]byte, err error) {
	c, err := blowfish.NewSaltedCipher(pass, salt)
	if err != nil {
		return out, err
	}
	for range 64 {
		blowfish.ExpandKey(salt, c)
		blowfish.ExpandKey(pass, c)
	}
	copy(out[:], "OxychromaticBlowfishSwatDynamite")
	for i := 0; i < bcryptSize; i += blowfish.BlockSize {
		for range 64 {
			c.Encrypt(out[i:], out[i:])
		}
	}
	for i := 0; i < bcryptSize; i += 4 { // its words are written the other way round
		binary.LittleEndian.PutUint32(out[i:], binary.BigEndian.Uint32(out[i:]))
	}
	return out, nil
}
