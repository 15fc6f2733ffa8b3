package ledger

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
)

const tableLabel = "yett ledger operation v1\n"

// tableHash is a hash of a set of operations that follows every change in
// constant time and needs no key: LtHash16 of Bellare and Micciancio (1997) in
// the parameters of Lewi, Kim, Maykov and Weis (2019), 1024 sums mod 2^16 of
// what a random function makes of each operation, here AES-256 in counter mode
// under the operation's SHA-256. Two sets with one hash are as hard to find as
// a short vector in a lattice, some 2^200 steps, or a collision of SHA-256.
type tableHash [1024]uint16

// add and remove take an operation in its canonical form.
func (h *tableHash) add(form []byte)    { h.mix(form, 1) }
func (h *tableHash) remove(form []byte) { h.mix(form, 0xffff) }

func (h *tableHash) mix(form []byte, times uint16) {
	text := make([]byte, 0, 1024) // on the stack, for what is not longer
	key := sha256.Sum256(append(append(text, tableLabel...), form...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the length of a key is right
	}
	var lanes [2 * len(h)]byte
	cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(lanes[:], lanes[:])
	for i := range h {
		h[i] += times * binary.BigEndian.Uint16(lanes[2*i:])
	}
}

// sum is what rows and epochs carry.
func (h *tableHash) sum() [sha256.Size]byte {
	var lanes [2 * len(h)]byte
	for i, n := range h {
		binary.BigEndian.PutUint16(lanes[2*i:], n)
	}
	return sha256.Sum256(lanes[:])
}
