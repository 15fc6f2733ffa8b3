package action

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// crockford is Douglas Crockford's base 32 alphabet: no I, L, O, U.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// NewID returns prefix followed by 160 random bits: an identity that cannot be
// guessed and is never used again.
func NewID(prefix string) string {
	var b [20]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	return prefix + crockford.EncodeToString(b[:])
}

// NewOrderedID is NewID with the time before the random bits, so that ids that
// are made one after the other lie beside one another in an index.
func NewOrderedID(prefix string, at time.Time) string {
	var b [10]byte
	binary.BigEndian.PutUint64(b[:], uint64(at.UnixMilli())<<16)
	return NewID(prefix + crockford.EncodeToString(b[:])[:10])
}
