package action

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// SameParameter reports whether some upstream may read a parameter name as own.
func SameParameter(name, own string) bool {
	own = FoldParameter(own)
	return AnyReading(name, func(folded string) bool { return folded == own })
}

// AnyReading asks of each name that an upstream may read out of one, spelled as
// FoldParameter spells it: a server that decodes twice finds another name in
// 'a%3Bapi_key', and one that takes ';' for '&' finds two.
func AnyReading(name string, is func(folded string) bool) bool {
	for range maxDecodings {
		if is(FoldParameter(name)) {
			return true
		}
		split := strings.FieldsFunc(name, func(c rune) bool { return c == ';' || c == '&' || c == '=' })
		if len(split) > 1 && slices.ContainsFunc(split, func(part string) bool { return is(FoldParameter(part)) }) {
			return true
		}
		decoded := lenientUnescape(name)
		if decoded == name {
			return false
		}
		name = decoded
	}
	return false
}

// maxDecodings is how often a name is decoded: no server does so more often.
const maxDecodings = 4

// FoldParameter spells a parameter name as the most lenient upstream reads it,
// so that a name can be refused in every spelling of it. PHP drops leading
// spaces, reads '.', ' ' and a lone '[' as '_', takes 'name[]' for name and ends
// it at a NUL; '+' may be a space. Databases and frameworks compare without case,
// accents, width and characters that draw nothing.
func FoldParameter(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	if strings.ContainsFunc(name, func(c rune) bool { return c > unicode.MaxASCII }) {
		name = norm.NFKD.String(sharpS.Replace(name))
	}
	name = strings.TrimSpace(strings.ReplaceAll(name, "+", " "))
	if base, index, _ := strings.Cut(name, "["); base != "" && strings.Contains(index, "]") {
		name = base
	}
	return strings.Map(foldRune, name)
}

// sharpS has two letters in another case.
var sharpS = strings.NewReplacer("\u00df", "ss", "\u1e9e", "ss")

// foldRune returns -1 for what draws nothing.
func foldRune(c rune) rune {
	switch {
	case 'A' <= c && c <= 'Z':
		return c - 'A' + 'a'
	case c == '.' || c == ' ' || c == '[' || c == '-':
		return '_'
	case c <= unicode.MaxASCII:
		return c
	case c == '\u0131': // dotless i, whose capital is I
		return 'i'
	case unicode.In(c, unicode.Zs, unicode.Pd, unicode.Pc):
		return '_'
	case unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Cc, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return -1
	}
	return c
}
