package approval

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes text that may come from an agent safe to show: it returns
// printable characters only, in reading order, on one line. Everything else
// stands as \u{HEX}, a run of spaces as \s{N}, a backslash as \\, and what lies
// behind the cap as \+{N}. Since a backslash of the text itself is doubled, no
// text can imitate these marks, and no two texts below the cap become equal.
// Categories are those of the Unicode standard, chapter 4; default-ignorable
// characters are those of DerivedCoreProperties. Letters that are written from
// right to left are marked too: between two of them a terminal reorders digits,
// signs and our own brackets.
func Escape(s string, limit int) string {
	var b strings.Builder
	runes := 0
	for i := 0; i < len(s); {
		if runes >= limit {
			b.WriteString(LeftOut(utf8.RuneCountInString(s[i:])))
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
	return unicode.IsPrint(r) && !unicode.Is(ignorable, r) && !unicode.Is(unicode.M, r) && !unicode.Is(rightToLeft, r)
}

// rightToLeft has the blocks whose characters are R, AL or AN by default in
// DerivedBidiClass.
var rightToLeft = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x0590, Hi: 0x08FF, Stride: 1}, {Lo: 0xFB1D, Hi: 0xFDFF, Stride: 1}, {Lo: 0xFE70, Hi: 0xFEFF, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x10800, Hi: 0x10FFF, Stride: 1}, {Lo: 0x1E800, Hi: 0x1EFFF, Stride: 1}},
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
		{Lo: 0xFFFC, Hi: 0xFFFC, Stride: 1}, // stands for an object that is not there
	},
	R32: []unicode.Range32{
		{Lo: 0x13441, Hi: 0x13442, Stride: 1}, // hieroglyphic blanks
		{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}, // null notehead
		{Lo: 0xE0100, Hi: 0xE01EF, Stride: 1},
	},
}

// LeftOut is the mark for n runes or items that are not shown.
func LeftOut(n int) string { return fmt.Sprintf(`\+{%d}`, n) }

// Printable is the last line before a terminal, for text of which every part
// was escaped where it had to be: it marks what does not draw itself and
// leaves all else as it is, backslashes and line breaks too. Printed twice it
// is the same.
func Printable(s string) string {
	hidden := func(r rune) bool { return r == utf8.RuneError || r != ' ' && r != '\n' && !visible(r) }
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x{%02X}`, s[i])
		case r == ' ', r == '\n', visible(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%04X}`, r)
		}
		i += size
	}
	return b.String()
}
