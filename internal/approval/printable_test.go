package approval

import (
	"strings"
	"testing"
)

func TestP04_PrintableIsTheLastLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain – text\nnext line     ":     "plain – text\nnext line     ",
		`an escape \u{202E} stays, \\ too`: `an escape \u{202E} stays, \\ too`,
		"a\x1b[2Kb\u202Ec\r\t\u200B\xff":   `a\u{001B}[2Kb\u{202E}c\u{000D}\u{0009}\u{200B}\x{FF}`,
		"\u3000\u0301\u2028א\uFFFD":        `\u{3000}\u{0301}\u{2028}\u{05D0}` + "\uFFFD",
		"":                                 "",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q)\n got %s\nwant %s", in, got, want)
		}
	}
}

// Whatever comes, what is printed draws itself, and printing it again changes
// nothing; what Escape has written stays as it is.
func FuzzPrintable(f *testing.F) {
	if len(escapeSeeds) == 0 {
		f.Fatal("the corpus is empty")
	}
	for _, s := range escapeSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Printable(s)
		for _, r := range out {
			if r != ' ' && r != '\n' && !visible(r) {
				t.Fatalf("%q becomes %q, which has U+%04X", s, out, r)
			}
		}
		if Printable(out) != out {
			t.Fatalf("%q becomes %q, and that %q", s, out, Printable(out))
		}
		escaped := Escape(s, 1000)
		if Printable(escaped) != escaped {
			t.Fatalf("what is escaped changes: %q", escaped)
		}
		if again := Escape(escaped, 1<<20); again != strings.ReplaceAll(escaped, `\`, `\\`) {
			t.Fatalf("escaped twice, %q has new marks: %q", escaped, again)
		}
	})
}
