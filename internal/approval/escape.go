package approval

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Caps of one string in runes. What is longer is cut with a visible mark.
const (
	capText    = 512
	capRequest = 16 << 10
	capItems   = 64 // of an array, and members of an object
)

// Escape makes text that may come from an agent safe to show: it returns
// printable characters only, in reading order, on one line. Everything else
// stands as \u{HEX}, a run of spaces as \s{N}, a backslash as \\, and what lies
// behind the cap as \+{N}. Since a backslash of the text itself is doubled, no
// text can imitate these marks. Categories are those of the Unicode standard,
// chapter 4; default-ignorable characters are those of DerivedCoreProperties.
func Escape(s string, limit int) string {
	var b strings.Builder
	runes := 0
	for i := 0; i < len(s); {
		if runes >= limit {
			fmt.Fprintf(&b, `\+{%d}`, utf8.RuneCountInString(s[i:]))
			break
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x{%02X}`, s[i])
			i, runes = i+1, runes+1
			continue
		}
		if r == ' ' {
			n := len(s[i:]) - len(strings.TrimLeft(s[i:], " "))
			if n > 2 {
				fmt.Fprintf(&b, `\s{%d}`, n)
			} else {
				b.WriteString(s[i : i+n])
			}
			i, runes = i+n, runes+n
			continue
		}
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case visible(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%04X}`, r)
		}
		i, runes = i+size, runes+1
	}
	return b.String()
}

// visible reports whether r draws itself and nothing but itself.
func visible(r rune) bool {
	if r < 0x80 {
		return r > 0x20 && r != 0x7f
	}
	return unicode.IsPrint(r) && !unicode.Is(ignorable, r) && !unicode.Is(unicode.M, r)
}

// ignorable has the default-ignorable characters that unicode.IsPrint accepts,
// and the blanks that are not called spaces.
var ignorable = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034F, Hi: 0x034F, Stride: 1},
		{Lo: 0x115F, Hi: 0x1160, Stride: 1},
		{Lo: 0x17B4, Hi: 0x17B5, Stride: 1},
		{Lo: 0x180B, Hi: 0x180F, Stride: 1},
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // braille blank
		{Lo: 0x3164, Hi: 0x3164, Stride: 1},
		{Lo: 0xFE00, Hi: 0xFE0F, Stride: 1},
		{Lo: 0xFFA0, Hi: 0xFFA0, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}, {Lo: 0xE0100, Hi: 0xE01EF, Stride: 1}},
}

func escapeTree(v any, limit int) any {
	switch v := v.(type) {
	case string:
		return Escape(v, limit)
	case []any:
		if len(v) > capItems {
			v = append(v[:capItems:capItems], fmt.Sprintf("and %d more", len(v)-capItems))
		}
		for i := range v {
			v[i] = escapeTree(v[i], limit)
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if len(out) == capItems {
				out["…"] = fmt.Sprintf("and %d more", len(v)-capItems)
				break
			}
			out[Escape(k, 64)] = escapeTree(e, limit)
		}
		return out
	}
	return v
}
