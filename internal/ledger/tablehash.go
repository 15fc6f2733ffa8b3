package ledger

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

const tableLabel = "yett ledger operation v1\n"

// tableHash is a hash of a set of operations that follows every change in
// constant time and needs no key: LtHash16 of Bellare and Micciancio (1997) in
// the parameters of Lewi, Kim, Maykov and Weis (2019), 1024 sums mod 2^16 of
// what a random function makes of each operation, here AES-256 in counter mode
// under the operation's SHA-256. Two sets with one hash are as hard to find as
// a short vector in a lattice, some 2^200 steps, or a collision of SHA-256.
//
// Four sums lie in one word, as they stand in the text that is hashed.
type tableHash [256]uint64

// high has the highest bit of each sum in a word.
const high = 0x8000_8000_8000_8000

// lanes are for one call each. A stack would have to grow for them.
var lanes = sync.Pool{New: func() any { return new([8 * len(tableHash{})]byte) }}

// add and remove take an operation in its canonical form.
func (h *tableHash) add(form []byte) {
	b := stream(form)
	defer lanes.Put(b)
	for i := range h {
		x, y := h[i], binary.BigEndian.Uint64(b[8*i:])
		h[i] = (x&^high + y&^high) ^ (x^y)&high // no sum carries into the next
	}
}

func (h *tableHash) remove(form []byte) {
	b := stream(form)
	defer lanes.Put(b)
	for i := range h {
		x, y := h[i], binary.BigEndian.Uint64(b[8*i:])
		h[i] = ((x | high) - y&^high) ^ (x^^y)&high // no sum borrows from the next
	}
}

// stream is what the random function makes of an operation.
func stream(form []byte) *[8 * len(tableHash{})]byte {
	b := lanes.Get().(*[8 * len(tableHash{})]byte)
	key := sha256.Sum256(append(append(b[:0], tableLabel...), form...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the length of a key is right
	}
	clear(b[:])
	cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(b[:], b[:])
	return b
}

// sum is what rows and epochs carry.
func (h *tableHash) sum() [sha256.Size]byte {
	text := lanes.Get().(*[8 * len(h)]byte)
	defer lanes.Put(text)
	for i, n := range h {
		binary.BigEndian.PutUint64(text[8*i:], n)
	}
	return sha256.Sum256(text[:])
}
