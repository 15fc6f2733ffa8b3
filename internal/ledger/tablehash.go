package ledger

import (
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
)

const tableLabel = "yett ledger operation v1\n"

// tableHash is a hash of a set of operations that follows every change in
// constant time and needs no key: LtHash16 of Bellare and Micciancio (1997) in
// the parameters of Lewi, Kim, Maykov and Weis (2019), 1024 sums mod 2^16 of
// what SHAKE128 makes of each operation. Two sets with one hash are as hard to
// find as a short vector in a lattice, some 2^200 steps.
type tableHash [1024]uint16

func (h *tableHash) add(c *columns)    { h.mix(c, 1) }
func (h *tableHash) remove(c *columns) { h.mix(c, 0xffff) }

func (h *tableHash) mix(c *columns, times uint16) {
	var lanes [2 * len(h)]byte
	x := sha3.NewSHAKE128()
	x.Write([]byte(tableLabel))
	x.Write(c.encode())
	x.Read(lanes[:])
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
