package approval

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/bidi"
)

// P04: what a requester writes to forge a prompt stands there as what it is.
func TestP04_EscapeMarksWhatDoesNotShow(t *testing.T) {
	for in, want := range map[string]string{
		"plain – text, “quoted” 漢字 é €": "plain – text, “quoted” 漢字 é €",
		"pay\u202Egpj.exe":              `pay\u{202E}gpj.exe`,
		"\u2066a\u2069\u061C\u200F":     `\u{2066}a\u{2069}\u{061C}\u{200F}`,
		"a\u200Bb\u200D\uFEFF\u00AD":    `a\u{200B}b\u{200D}\u{FEFF}\u{00AD}`,
		"a\u2028b\u2029c\u0085d":        `a\u{2028}b\u{2029}c\u{0085}d`,
		"ok\U000E0100\uFE0F\U000E0041":  `ok\u{E0100}\u{FE0F}\u{E0041}`,
		"\x1b[2K\x1b[1Ayes\x9b":         `\u{001B}[2K\u{001B}[1Ayes\x{9B}`,
		"a\u009b2J":                     `a\u{009B}2J`,
		"a\nHost: x\r\tb\x00\x7f":       `a\u{000A}Host: x\u{000D}\u{0009}b\u{0000}\u{007F}`,
		strings.Repeat(" ", 500) + "x":  `\s{500}x`,
		"a  b   c":                      `a  b\s{3}c`,
		strings.Repeat("\u3000", 3):     `\u{3000}\u{3000}\u{3000}`,
		"\u00A0\u2003\u1680":            `\u{00A0}\u{2003}\u{1680}`,
		"\u3164\uFFA0\u115F\u2800":      `\u{3164}\u{FFA0}\u{115F}\u{2800}`,
		"\U00013441\U0001D159\uFFFC":    `\u{13441}\u{1D159}\u{FFFC}`,
		"Z\u0351\u036B\u0301a\u20DD":    `Z\u{0351}\u{036B}\u{0301}a\u{20DD}`,
		"\xff\xc0\x80\xed\xa0\x80":      `\x{FF}\x{C0}\x{80}\x{ED}\x{A0}\x{80}`,
		"\uFFFD":                        "\uFFFD",
		"\uE000\uFFFF\U0010FFFF\u0378":  `\u{E000}\u{FFFF}\u{10FFFF}\u{0378}`,
		`\u{202E} \x{FF} \s{500} \+{9}`: `\\u{202E} \\x{FF} \\s{500} \\+{9}`,
		`\`:                             `\\`,
		"":                              "",
	} {
		if got := Escape(in, 10_000); got != want {
			t.Errorf("Escape(%q)\n got %s\nwant %s", in, got, want)
		}
	}
}

// P04: a terminal that knows bidirectional text reorders digits, signs and our
// brackets between letters that run from right to left, with no control
// character at all. No visible character has such a class.
func TestP04_NothingVisibleReorders(t *testing.T) {
	if got, want := Escape("אב 5) גד", 100), `\u{05D0}\u{05D1} 5) \u{05D2}\u{05D3}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for r := range rune(unicode.MaxRune + 1) {
		if !visible(r) {
			continue
		}
		p, _ := bidi.LookupRune(r)
		switch c := p.Class(); c {
		case bidi.L, bidi.EN, bidi.ES, bidi.ET, bidi.CS, bidi.ON:
		default:
			t.Errorf("U+%04X is visible and has bidi class %v", r, c)
		}
	}
}

func TestP04_CutHasAMark(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	if got, want := Escape(long, 512), strings.Repeat("x", 512)+`\+{9488}`; got != want {
		t.Errorf("10,000 characters become %d bytes ending in %q", len(got), got[len(got)-12:])
	}
	if got := Escape(strings.Repeat("\u202E", 10_000), 4); got != `\u{202E}\u{202E}\u{202E}\u{202E}\+{9996}` {
		t.Errorf("got %s", got)
	}
	if got := Escape("é漢x", 3); got != "é漢x" {
		t.Errorf("a text as long as the cap is cut: %s", got)
	}
	if got := Escape("ab\xff\xffcd", 3); got != `ab\x{FF}\+{3}` {
		t.Errorf("invalid bytes count as one each: %s", got)
	}
	// The mark itself cannot be written by the text that it stands behind.
	if a, b := Escape(`ab\+{2}`, 100), Escape("abcd", 2); a == b {
		t.Errorf("a text imitates the mark of a cut: %s", a)
	}
}

var escapeSeeds = []string{
	"", " ", "  ", "   ", "a    b  c", `\`, `\\`, `\u{202E}`, "\u202E", `\s{3}`, `\x{FF}`, "\xff", "\xfe\xff", "\uFFFD",
	`\+{3}`, "\u2028", "\U000E0100", "\x1b[2K", "אבג", "a\u0301", "漢字", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a \\ b", "\u3000\u3000", "\r\n",
}

// Escape has an inverse below the cap, so no two texts become equal there; and
// whatever comes in, one printable line comes out.
func FuzzEscapeIsInjective(f *testing.F) {
	if len(escapeSeeds) == 0 {
		f.Fatal("the corpus is empty")
	}
	for _, s := range escapeSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Escape(s, utf8.RuneCountInString(s))
		for _, r := range out {
			if r != ' ' && !visible(r) {
				t.Fatalf("%q becomes %q, which has U+%04X", s, out, r)
			}
		}
		if strings.Contains(out, "   ") {
			t.Fatalf("%q becomes %q, which has a run of spaces", s, out)
		}
		back, err := unescape(out)
		if err != nil || back != s {
			t.Fatalf("%q becomes %q and is read back as %q, %v", s, out, back, err)
		}
		if n := utf8.RuneCountInString(Escape(s, 8)); n > 8*len(`\u{10FFFF}`)+len(`\+{}`)+20 {
			t.Fatalf("%q with a cap of 8 has %d characters", s, n)
		}
	})
}

// unescape is the inverse. It is written from the comment of Escape.
func unescape(s string) (string, error) {
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		if rest, ok := strings.CutPrefix(s, `\`); ok {
			b.WriteByte('\\')
			s = rest
			continue
		}
		end := strings.IndexByte(s, '}')
		if end < 2 || s[1] != '{' {
			return "", fmt.Errorf("no mark at %q", s)
		}
		base := 16
		if s[0] == 's' {
			base = 10
		}
		n, err := strconv.ParseInt(s[2:end], base, 64)
		if err != nil {
			return "", err
		}
		switch s[0] {
		case 'u':
			b.WriteRune(rune(n))
		case 'x':
			b.WriteByte(byte(n))
		case 's':
			b.WriteString(strings.Repeat(" ", int(n)))
		default:
			return "", fmt.Errorf("no such mark: %q", s)
		}
		s = s[end+1:]
	}
	return b.String(), nil
}
