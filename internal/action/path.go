package action

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// CanonicalPath returns the one spelling of a request path in which rules are
// matched and which is sent byte for byte: percent-encoding in upper case,
// unreserved characters plain, everything that must be encoded encoded.
//
// A path that servers and proxies resolve differently has no canonical form:
// encoded slashes and backslashes, dot segments in any spelling (also with
// ';' parameters, trailing spaces or full-width dots), double encodings, empty
// inner segments, control characters, and whatever is not UTF-8.
func CanonicalPath(path string) (string, *Refusal) {
	if path == "" {
		return "", badRequest("path is missing")
	}
	if len(path) > maxPath {
		return "", badRequest("path is longer than %d bytes", maxPath)
	}
	if path[0] != '/' {
		return "", outside("path does not begin with '/'")
	}
	decoded := make([]string, 0, 8)
	var out strings.Builder
	out.Grow(len(path))
	for segment := range strings.SplitSeq(path[1:], "/") {
		plain, canonical, r := canonicalSegment(segment)
		if r != nil {
			return "", r
		}
		decoded = append(decoded, plain)
		out.WriteByte('/')
		out.WriteString(canonical)
	}
	for i, plain := range decoded {
		last := i == len(decoded)-1
		if r := checkSegment(plain, last); r != nil {
			return "", r
		}
	}
	if out.Len() > maxPath {
		return "", badRequest("path is longer than %d bytes", maxPath)
	}
	return out.String(), nil
}

// canonicalSegment returns a segment decoded and in its canonical spelling.
// Reserved characters keep the spelling they came in: to a server 'a:b' and
// 'a%3Ab' may differ.
func canonicalSegment(s string) (plain, canonical string, r *Refusal) {
	var p, c strings.Builder
	p.Grow(len(s))
	c.Grow(len(s))
	for i := 0; i < len(s); i++ {
		b, encoded := s[i], false
		if b == '%' {
			v, ok := unhex(s[i+1:])
			if !ok {
				return "", "", outside("path has a '%%' without two hexadecimal digits")
			}
			b, encoded = v, true
			i += 2
		}
		switch {
		case b == '\\' || b == '/':
			return "", "", outside("path has a backslash or an encoded slash")
		case !encoded && (b == '?' || b == '#'):
			return "", "", outside("path has '%c'; parameters belong in query", b)
		}
		p.WriteByte(b)
		if isUnreserved(b) || !encoded && isPathByte(b) {
			c.WriteByte(b)
		} else {
			writeEscape(&c, b)
		}
	}
	plain, canonical = p.String(), c.String()
	if !utf8.ValidString(plain) {
		return "", "", outside("path is not UTF-8")
	}
	if strings.ContainsFunc(plain, unicode.IsControl) {
		return "", "", outside("path has a control character")
	}
	return plain, canonical, nil
}

// hasDoubleEncoding reports whether decoded text decodes once more. It looks
// at decoded text because '%25%32e' says the same as '%252e'.
func hasDoubleEncoding(plain string) bool {
	for i := range len(plain) {
		if plain[i] == '%' {
			if _, ok := unhex(plain[i+1:]); ok {
				return true
			}
		}
	}
	return false
}

// lookalikes are what some servers fold to the character that matters here
// (best-fit mapping, NFKC).
var lookalikes = strings.NewReplacer(
	"\uff0e", ".", "\u2024", ".", "\u2025", "..", "\u2026", "...", "\ufe52", ".",
	"\uff0f", "/", "\uff3c", "\\", "\ufe68", "\\", "\uff05", "%", "\ufe6a", "%", "\uff1b", ";", "\ufe54", ";",
)

// checkSegment refuses a decoded segment that a server could resolve away.
func checkSegment(plain string, last bool) *Refusal {
	if plain == "" {
		if !last {
			return outside("path has an empty segment")
		}
		return nil
	}
	folded := lookalikes.Replace(plain)
	if strings.ContainsAny(folded, `/\`) {
		return outside("path has a character that servers fold to a slash or backslash")
	}
	if hasDoubleEncoding(folded) {
		return outside("path is encoded twice")
	}
	name, _, _ := strings.Cut(folded, ";")
	if strings.TrimFunc(name, isDotOrSpace) == "" {
		return outside("path has a dot segment, or one of parameters only")
	}
	return nil
}

// FoldPath spells a path as the most lenient server reads it, so that one can be
// refused in every spelling of it: without case, escapes, the parameters of
// segments, and spaces and dots at their ends.
func FoldPath(path string) string {
	segments := strings.Split(lookalikes.Replace(lenientUnescape(path)), "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		segments[i] = strings.TrimLeftFunc(strings.TrimRightFunc(s, isDotOrSpace), unicode.IsSpace)
	}
	return strings.TrimRight(strings.ToLower(strings.ToUpper(strings.Join(segments, "/"))), "/")
}

func isDotOrSpace(c rune) bool { return c == '.' || unicode.IsSpace(c) }

// isUnreserved is RFC 3986 section 2.3.
func isUnreserved(c byte) bool {
	return isAlphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

// isPathByte is what RFC 3986 calls pchar, without escapes.
func isPathByte(c byte) bool {
	return isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0
}

func escapeInto(b *strings.Builder, s string, plain func(byte) bool) {
	for i := range len(s) {
		if plain(s[i]) {
			b.WriteByte(s[i])
		} else {
			writeEscape(b, s[i])
		}
	}
}

func writeEscape(b *strings.Builder, c byte) {
	const digits = "0123456789ABCDEF"
	b.WriteByte('%')
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
}

// unhex reads the two digits that s begins with.
func unhex(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	hi, ok1 := hexDigit(s[0])
	lo, ok2 := hexDigit(s[1])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
