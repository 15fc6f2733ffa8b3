package vault

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
)

// A recovery code is 20 random bytes (160 bits) and the first 5 bytes of their
// SHA-256, in Crockford's base32, printed as eight groups of five:
// "7ZK3M-…". Case, dashes and spaces do not count, and the letters that are
// easily misread count as what they look like.
const (
	recoveryRandom = 20
	recoverySum    = 5
	recoveryChars  = 40
	recoveryGroup  = 5
)

var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// ErrRecoveryCode: the text is not a recovery code, or one that was mistyped.
var ErrRecoveryCode = errors.New("not a valid recovery code")

// NewRecoveryCode returns a fresh code as printed, for SetSlot.
func NewRecoveryCode() string {
	code := newRecoveryCode()
	defer clear(code)
	return printedRecovery(code)
}

// newRecoveryCode returns a code in its normal form.
func newRecoveryCode() []byte {
	random := randomBytes(recoveryRandom)
	defer clear(random)
	sum := recoveryChecksum(random)
	full := append(make([]byte, 0, recoveryRandom+recoverySum), random...)
	full = append(full, sum...)
	defer clear(full)
	code := make([]byte, recoveryChars)
	crockford.Encode(code, full)
	return code
}

// printedRecovery sets the dashes.
func printedRecovery(code []byte) string {
	var groups [][]byte
	for i := 0; i < len(code); i += recoveryGroup {
		groups = append(groups, code[i:i+recoveryGroup])
	}
	return string(bytes.Join(groups, []byte("-")))
}

func recoveryChecksum(random []byte) []byte {
	sum := sha256.Sum256(append([]byte("yett-vault/1 recovery "), random...))
	return sum[:recoverySum]
}

// IsRecoveryCode reports whether s is a whole recovery code, however spaced.
func IsRecoveryCode(s []byte) bool {
	code, err := NormalizeRecovery(s)
	clear(code)
	return err == nil
}

// NormalizeGroup returns the form of a part of a code, as typed, without
// checking it.
func NormalizeGroup(s []byte) []byte {
	var group []byte
	for _, c := range s {
		if c, ok := recoveryChar(c); ok {
			group = append(group, c)
		}
	}
	return group
}

// recoveryChar is a typed character as the code has it. Not ok is one that does
// not count.
func recoveryChar(c byte) (normal byte, ok bool) {
	switch {
	case c == '-' || c == ' ' || c == '\t' || c == '\r' || c == '\n':
		return 0, false
	case c == 'o' || c == 'O':
		return '0', true
	case c == 'i' || c == 'I' || c == 'l' || c == 'L':
		return '1', true
	case 'a' <= c && c <= 'z':
		return c - ('a' - 'A'), true
	}
	return c, true
}

// NormalizeRecovery returns the form of a typed recovery code that Derive
// takes. The checksum catches a mistyped one before the slow derivation.
func NormalizeRecovery(s []byte) ([]byte, error) {
	code := make([]byte, 0, recoveryChars)
	for _, c := range s {
		c, ok := recoveryChar(c)
		if !ok {
			continue
		}
		if len(code) == recoveryChars {
			clear(code)
			return nil, fmt.Errorf("%w: it has more than %d characters", ErrRecoveryCode, recoveryChars)
		}
		code = append(code, c)
	}
	if len(code) != recoveryChars {
		n := len(code)
		clear(code)
		return nil, fmt.Errorf("%w: it has %d of %d characters", ErrRecoveryCode, n, recoveryChars)
	}
	full := make([]byte, recoveryRandom+recoverySum)
	defer clear(full)
	if _, err := crockford.Decode(full, code); err != nil {
		clear(code) // the decoder's error would name a character of the code
		return nil, fmt.Errorf("%w: it has a character that no code has", ErrRecoveryCode)
	}
	if !bytes.Equal(recoveryChecksum(full[:recoveryRandom]), full[recoveryRandom:]) {
		clear(code)
		return nil, fmt.Errorf("%w: it was mistyped", ErrRecoveryCode)
	}
	return code, nil
}
