package action

import (
	"crypto/rand"
	"encoding/base32"
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
