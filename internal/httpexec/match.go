package httpexec

import "bytes"

const (
	maxGap   = 4  // line breaks and zero bytes between two characters
	maxStep  = 64 // bytes that one character of a pattern may take, with its gap
	minBegun = 4  // characters of a pattern at a broken end that count as an echo
)

// reading is how many layers of each kind of escape a text is taken to have
// over a pattern that has characters which begin escapes itself.
type reading struct{ percent, backslash, entity int }

func (r reading) layers(c byte) int {
	switch c {
	case '%':
		return r.percent
	case '\\':
		return r.backslash
	}
	return r.entity
}

// readings are tried in this order. A text escapes throughout or not at all,
// and seldom in more than one way.
var readings = []reading{
	{}, {percent: 1}, {percent: 2}, {backslash: 1}, {backslash: 2}, {entity: 1}, {entity: 2}, {1, 1, 1}, {2, 2, 2},
}

// match returns the end of p at b[i:], or 0. Where broken says that b was cut
// off, a beginning of p that reaches the end of b is a match as well.
func (p *pattern) match(b []byte, i int, broken bool) int {
	if !p.escapable { // then no character can be read in two ways
		return p.matchReading(b, i, reading{2, 2, 2}, broken)
	}
	for _, r := range readings {
		if end := p.matchReading(b, i, r, broken); end != 0 {
			return end
		}
	}
	return 0
}

func (p *pattern) matchReading(b []byte, i int, r reading, broken bool) int {
	at := i
	for k, want := range p.text {
		if k > 0 {
			at = skipGap(b, at, want)
		}
		width := 0
		if at < len(b) {
			width = step(b, at, want, r)
		}
		if width == 0 {
			if broken && k >= minBegun && cutOff(b, at) {
				return len(b)
			}
			return 0
		}
		at += width
	}
	return at
}

// cutOff reports whether b ends at b[at], or in an escape that begins there.
func cutOff(b []byte, at int) bool {
	return at == len(b) || len(b)-at < 12 && beginsEscape(b[at])
}

// step returns the width of the character at b[at] if it may be read as want,
// or 0. The layers that r expects are tried first, then fewer, then more.
func step(b []byte, at int, want byte, r reading) int {
	c := b[at]
	if !beginsEscape(c) {
		if same(c, want) {
			return 1
		}
		return 0
	}
	layers := r.layers(c)
	for l := layers; l >= 0; l-- {
		if width := readAs(b, at, want, l); width != 0 {
			return width
		}
	}
	for l := layers + 1; l <= 2; l++ {
		if width := readAs(b, at, want, l); width != 0 {
			return width
		}
	}
	return 0
}

// same compares a character of a text with one of a pattern: in URLs a plus
// may be a space.
func same(c, want byte) bool { return lower(c) == want || c == '+' && want == ' ' }

func readAs(b []byte, at int, want byte, layers int) int {
	if layers == 0 {
		if b[at] == want {
			return 1
		}
		return 0
	}
	if c, width, ok := decode(b, at, layers); ok && same(c, want) {
		return width
	}
	return 0
}

// skipGap passes over what encoders put between the characters of a value.
func skipGap(b []byte, at int, want byte) int {
	for range maxGap {
		if at >= len(b) || lower(b[at]) == want {
			return at
		}
		c, width := b[at], 1
		if beginsEscape(c) {
			var ok bool
			if c, width, ok = decode(b, at, 1); !ok {
				return at
			}
		}
		if c != 0 && c != '\r' && c != '\n' {
			return at
		}
		at += width
	}
	return at
}

func beginsEscape(c byte) bool { return c == '%' || c == '\\' || c == '&' }

// decode reads the escape at b[at], which begins with one of %, \ and &: as it
// stands in URLs, in JSON and program texts, and in HTML; with 2 layers, the same
// escaped once more.
func decode(b []byte, at, layers int) (c byte, width int, ok bool) {
	switch b[at] {
	case '%':
		return decodePercent(b[at:], layers)
	case '\\':
		return decodeBackslash(b[at:], layers)
	}
	return decodeEntity(b[at:], layers)
}

func decodePercent(b []byte, layers int) (byte, int, bool) {
	skip := 1
	if layers == 2 {
		if len(b) < 3 || b[1] != '2' || b[2] != '5' {
			return 0, 0, false
		}
		skip = 3
	}
	c, ok := hexByte(b, skip)
	return c, skip + 2, ok
}

func decodeBackslash(b []byte, layers int) (byte, int, bool) {
	n := 1 // of backslashes: an escaped escape has two or more
	for n < len(b) && n < 5 && b[n] == '\\' {
		n++
	}
	if n >= 2*layers && n > 1 {
		if layers == 1 {
			return '\\', 2, true
		}
		return '\\', 4, true
	}
	if n == len(b) || n == 5 {
		return 0, 0, false
	}
	switch c := b[n]; c {
	case '"', '\'', '/':
		return c, n + 1, true
	case 'n':
		return '\n', n + 1, true
	case 'r':
		return '\r', n + 1, true
	case 'x':
		v, ok := hexByte(b, n+1)
		return v, n + 3, ok
	case 'u':
		if len(b) < n+5 || b[n+1] != '0' || b[n+2] != '0' {
			return 0, 0, false
		}
		v, ok := hexByte(b, n+3)
		return v, n + 5, ok
	}
	return 0, 0, false
}

var entities = []struct {
	name string
	c    byte
}{{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}

func decodeEntity(b []byte, layers int) (byte, int, bool) {
	if layers == 2 { // &amp;quot; is &quot; escaped: read it without the amp;
		if !bytes.HasPrefix(b, []byte("&amp;")) {
			return 0, 0, false
		}
		c, width, ok := decodeEntity(append([]byte{'&'}, b[5:min(len(b), 16)]...), 1)
		return c, width + 4, ok
	}
	for _, e := range entities {
		if len(b) >= len(e.name) && string(b[:len(e.name)]) == e.name {
			return e.c, len(e.name), true
		}
	}
	if len(b) < 4 || b[1] != '#' {
		return 0, 0, false
	}
	base, at := 10, 2
	if b[2] == 'x' || b[2] == 'X' {
		base, at = 16, 3
	}
	v, from := 0, at
	for ; at < len(b) && at < from+6; at++ {
		d, ok := digit(b[at])
		if !ok || d >= base {
			break
		}
		v = v*base + d
	}
	if at == from || at == len(b) || b[at] != ';' || v > 255 {
		return 0, 0, false
	}
	return byte(v), at + 1, true
}

func hexByte(b []byte, at int) (byte, bool) {
	if len(b) < at+2 {
		return 0, false
	}
	hi, ok1 := digit(b[at])
	lo, ok2 := digit(b[at+1])
	return byte(hi<<4 | lo), ok1 && ok2
}

func digit(c byte) (int, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0'), true
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10, true
	}
	return 0, false
}

func isBase64(c byte) bool {
	_, letter := digit(lower(c))
	return letter || lower(c) >= 'a' && lower(c) <= 'z' || c == '+' || c == '/' || c == '-' || c == '_'
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - ('a' - 'A')
	}
	return c
}
