package vault

import (
	"bytes"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// ErrUnclean: a value with characters that a paste brings along and no server
// accepts. What wraps it says which kind and where, never the value.
var ErrUnclean = errors.New("the value is not clean")

// checkValue refuses what cannot be meant. Keys of kind ssh-key have lines;
// every other kind ends up in one header, parameter or form field.
func checkValue(kind string, value []byte) error {
	switch {
	case len(value) < minSecret:
		return ErrTooShort
	case len(value) > maxSecret:
		return ErrTooLong
	case kind == kindSSHKey:
		return nil
	}
	if bytes.HasPrefix(value, []byte{0xff, 0xfe}) || bytes.HasPrefix(value, []byte{0xfe, 0xff}) {
		return fmt.Errorf("%w: a byte order mark at its beginning", ErrUnclean)
	}
	first, n := utf8.DecodeRune(value)
	if what := unwanted(first); what != "" {
		return fmt.Errorf("%w: %s at its beginning", ErrUnclean, what)
	}
	last, m := utf8.DecodeLastRune(value)
	if what := unwanted(last); what != "" {
		return fmt.Errorf("%w: %s at its end", ErrUnclean, what)
	}
	for rest := value[n : len(value)-m]; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: a control character within it", ErrUnclean)
		}
		rest = rest[size:]
	}
	return nil
}

// CheckValue says why SetSecret would not take a value of that kind, or nil.
func CheckValue(kind string, value []byte) error { return checkValue(kind, dropNewline(value)) }

// Clean reports whether SetSecret would take a value of that kind.
func Clean(kind string, value []byte) bool { return checkValue(kind, dropNewline(value)) == nil }

// unwanted names what a value must not begin or end with, "" if r is fine.
func unwanted(r rune) string {
	switch {
	case r == '\n' || r == '\r':
		return "a line break"
	case r == '\t':
		return "a tab"
	case unicode.IsControl(r):
		return "a control character"
	case r == ' ':
		return "a space"
	case r == '\u00a0':
		return "a no-break space"
	case r == '\ufeff':
		return "a byte order mark"
	case unicode.IsSpace(r) || unicode.Is(unicode.Zs, r):
		return "a space"
	case unicode.Is(unicode.Cf, r):
		return "an invisible character"
	}
	return ""
}
