package wire

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// value is one JSON value (RFC 8259), a view into the frame that it stands in.
// The whole frame is parsed once, into values, before anything is decoded.
type value struct {
	kind    byte   // first byte: one of { [ " t f n, or 0 for a number
	escaped bool   // of a string: it has a backslash
	raw     []byte // its bytes
	members []member
	items   []value
}

type member struct {
	name string
	value
}

// member returns the member of exactly this name.
func (v value) member(name string) (value, bool) {
	for _, m := range v.members {
		if m.name == name {
			return m.value, true
		}
	}
	return value{}, false
}

// text returns the content of a string.
func (v value) text() string { return string(v.content()) }

// content is the content of a string: in the frame, if nothing in it is escaped.
func (v value) content() []byte {
	if !v.escaped {
		return v.raw[1 : len(v.raw)-1]
	}
	var s string
	json.Unmarshal(v.raw, &s) // the parser has accepted it
	return []byte(s)
}

// base64 returns the bytes that a string in base64 means, nil for null.
func (v value) base64() ([]byte, error) {
	switch v.kind {
	case 'n':
		return nil, nil
	case '"':
		return base64.StdEncoding.AppendDecode([]byte{}, v.content())
	}
	return nil, errors.New("no string")
}

// holdsNull reports whether a null stands in the value or in what it holds:
// encoding/json would take it for the zero value.
func (v value) holdsNull() bool {
	if v.kind == 'n' {
		return true
	}
	for _, m := range v.members {
		if m.holdsNull() {
			return true
		}
	}
	for _, i := range v.items {
		if i.holdsNull() {
			return true
		}
	}
	return false
}

// maxMembers is the most members that one object of a request may have.
const maxMembers = 256

// jsonParser reads one value and refuses what no request may contain, wherever it
// stands: invalid UTF-8, names that are equal under case folding (encoding/json
// would let one stand for the other), deep nesting, and data behind the value.
type jsonParser struct {
	in   []byte
	at   int
	max  Limits
	fail *Error

	keep      int    // how deep the members and items are kept that values hold
	check     bool   // go on when ambiguous
	ambiguous *Error // what two parsers may read differently
	halves    int    // surrogates that stand alone
	ids       int    // members of the top-level object that are named id, in any case
	id        []byte // the last of them, if it is text or a number that can be repeated
}

func parse(frame []byte) (value, *Error) {
	p := &jsonParser{in: frame, max: Limits{Depth: MaxDepth, Members: maxMembers}, keep: MaxDepth}
	v := p.whole()
	if p.fail != nil {
		return value{}, p.fail
	}
	return v, nil
}

// parseReply reads what the broker wrote, of which it keeps the members and those
// of the result, and no more of what these hold.
func parseReply(frame []byte) (value, error) {
	const deepest = 10_000 // as encoding/json has it
	p := &jsonParser{in: frame, max: Limits{Depth: deepest, Members: MaxFrame}, keep: 2, check: true}
	v := p.whole()
	if p.fail == nil && v.kind != '{' {
		p.refuse("the reply is not an object")
	}
	if p.fail != nil {
		return value{}, errors.New(p.fail.Message)
	}
	return v, nil
}

// whole takes the one value that the input is.
func (p *jsonParser) whole() value {
	if !utf8.Valid(p.in) {
		p.refuse("the message is not valid UTF-8")
		return value{}
	}
	v := p.value(0)
	p.space()
	if p.fail == nil && p.at != len(p.in) {
		p.refuse("data follows the message on its line")
	}
	return v
}

// refuse keeps the first failure and moves to the end, so that every loop ends.
func (p *jsonParser) refuse(format string, args ...any) {
	if p.fail == nil {
		p.fail = Errorf(CodeProtocolError, format, args...)
	}
	p.at = len(p.in)
}

// doubt refuses what two parsers may read differently, or notes it.
func (p *jsonParser) doubt(format string, args ...any) {
	if !p.check {
		p.refuse(format, args...)
		return
	}
	p.ambiguous = Errorf(CodeProtocolError, format, args...)
}

func (p *jsonParser) malformed() { p.refuse("the message is not JSON") }

// next returns the byte at hand, or 0 at the end, which no JSON has outside of
// a string and no string may have inside.
func (p *jsonParser) next() byte {
	if p.at < len(p.in) {
		return p.in[p.at]
	}
	return 0
}

func (p *jsonParser) space() {
	for c := p.next(); c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = p.next() {
		p.at++
	}
}

// want takes one byte.
func (p *jsonParser) want(c byte) {
	if p.next() != c {
		p.malformed()
		return
	}
	p.at++
}

func (p *jsonParser) value(depth int) value {
	p.space()
	start := p.at
	v := value{kind: p.next()}
	switch v.kind {
	case '{', '[':
		if depth == p.max.Depth {
			p.refuse("the message is nested deeper than %d", p.max.Depth)
			return v
		}
		p.at++
		if v.kind == '{' {
			v.members = p.members(depth + 1)
		} else {
			v.items = p.items(depth + 1)
		}
	case '"':
		v.escaped = p.string()
	case 't':
		p.word("true")
	case 'f':
		p.word("false")
	case 'n':
		p.word("null")
	default:
		v.kind = 0
		p.number()
	}
	if p.fail == nil {
		v.raw = p.in[start:p.at]
	}
	return v
}

func (p *jsonParser) members(depth int) []member {
	var ms []member
	var seen names
	p.space()
	if p.next() == '}' {
		p.at++
		return nil
	}
	for p.fail == nil {
		p.space()
		start := p.at
		escaped := p.string()
		if p.fail != nil {
			break
		}
		name := value{escaped: escaped, raw: p.in[start:p.at]}.text()
		switch {
		case p.ambiguous != nil: // then no name matters any more
		case seen.twice(ms, name):
			p.doubt("a member stands twice (names are compared without regard to case)")
		case len(ms) == p.max.Members:
			p.doubt("an object has more than %d members", p.max.Members)
		}
		p.space()
		p.want(':')
		halves := p.halves
		v := p.value(depth)
		if p.check && depth == 1 && strings.EqualFold(name, "id") {
			p.ids++
			if p.halves == halves {
				p.id = v.raw
			}
		}
		if p.ambiguous == nil || depth <= p.keep {
			ms = append(ms, member{name, v})
		}
		p.space()
		if p.next() == '}' {
			p.at++
			break
		}
		p.want(',')
	}
	if depth > p.keep {
		return nil
	}
	return ms
}

func (p *jsonParser) items(depth int) []value {
	var vs []value
	p.space()
	if p.next() == ']' {
		p.at++
		return nil
	}
	for p.fail == nil {
		if v := p.value(depth); depth <= p.keep {
			vs = append(vs, v)
		}
		p.space()
		if p.next() == ']' {
			p.at++
			break
		}
		p.want(',')
	}
	return vs
}

// string takes a string: no raw control characters, only the escapes of JSON.
func (p *jsonParser) string() (escaped bool) {
	p.want('"')
	for p.fail == nil {
		p.at += plain(p.in[p.at:])
		switch p.next() {
		case '"':
			p.at++
			return escaped
		case '\\':
			escaped = true
			p.at++
			p.escape()
		default:
			p.malformed()
		}
	}
	return escaped
}

// plain returns how many bytes at the beginning of b are neither a quote, a
// backslash nor a control character. It looks at eight at a time, since a string
// may be a whole body: in hit, the high bit of a byte says that it is one of them.
// A bit above the lowest may be wrong, by a borrow, so only the lowest counts.
func plain(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(b); n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, backslash := w^'"'*ones, w^'\\'*ones
		hit := ((quote-ones)&^quote | (backslash-ones)&^backslash | (w-0x20*ones)&^w) & highs
		if hit != 0 {
			return n + bits.TrailingZeros64(hit)/8
		}
	}
	for n < len(b) && b[n] >= 0x20 && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

func (p *jsonParser) escape() {
	c := p.next()
	p.at++
	if c != 'u' {
		if c == 0 || !strings.ContainsRune(`"\/bfnrt`, rune(c)) {
			p.malformed()
		}
		return
	}
	switch r := p.hex4(); {
	case r >= 0xdc00 && r <= 0xdfff:
		p.half()
	case r >= 0xd800 && r <= 0xdbff: // the other half follows, or it is no text
		if p.next() != '\\' || p.at+1 >= len(p.in) || p.in[p.at+1] != 'u' {
			p.half()
			return
		}
		p.at += 2
		if low := p.hex4(); p.fail == nil && (low < 0xdc00 || low > 0xdfff) {
			p.half()
		}
	}
}

// half is about one half of a surrogate pair without the other: JSON allows it,
// but it is no text, and parsers differ on what they make of it.
func (p *jsonParser) half() {
	p.halves++
	p.doubt("half of a surrogate pair stands alone")
}

// hex4 takes four hexadecimal digits.
func (p *jsonParser) hex4() (r rune) {
	for range 4 {
		c := p.next()
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			p.malformed()
			return 0
		}
		p.at++
	}
	return r
}

func (p *jsonParser) word(w string) {
	if !strings.HasPrefix(string(p.in[p.at:min(p.at+len(w), len(p.in))]), w) {
		p.malformed()
		return
	}
	p.at += len(w)
}

// number takes a number: RFC 8259 section 6.
func (p *jsonParser) number() {
	if p.next() == '-' {
		p.at++
	}
	if p.next() == '0' {
		p.at++
	} else {
		p.digits()
	}
	if p.next() == '.' {
		p.at++
		p.digits()
	}
	if c := p.next(); c == 'e' || c == 'E' {
		p.at++
		if c := p.next(); c == '+' || c == '-' {
			p.at++
		}
		p.digits()
	}
}

// digits takes one or more digits.
func (p *jsonParser) digits() {
	start := p.at
	for c := p.next(); c >= '0' && c <= '9'; c = p.next() {
		p.at++
	}
	if p.at == start {
		p.malformed()
	}
}
