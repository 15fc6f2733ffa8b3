package action

import (
	"net/url"
	"strings"
	"testing"
)

// lookAlikes are spellings of a name that some upstream reads as that name.
func lookAlikes(name string) []string {
	wide := strings.Map(func(c rune) rune {
		if c > ' ' && c <= '~' {
			return c + 0xFEE0
		}
		return c
	}, name)
	script := strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' {
			return c - 'a' + 0x1D5BA // mathematical sans-serif
		}
		return c
	}, name)
	odd := strings.NewReplacer("k", "\u212A", "s", "\u017F", "i", "\u0131").Replace(name)
	all := []string{name, strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:], wide, strings.ToUpper(wide), script, odd,
		strings.ReplaceAll(name, "i", "\u0130"), strings.ReplaceAll(name, "ss", "\u1e9e"), name[:1] + "\u200b" + name[1:], name[:1] + "\u00ad" + name[1:], name + "\ufe0f", name[:1] + "\u0301" + name[1:],
		strings.ReplaceAll(name, "_", "\u2011"), strings.ReplaceAll(name, "_", "\u00a0"), strings.ReplaceAll(name, "_", "\u203f"), strings.ReplaceAll(name, "_", "+"),
		strings.ReplaceAll(name, "_", "-"), strings.ReplaceAll(name, "_", "."), strings.ReplaceAll(name, "_", "["), strings.ReplaceAll(name, "_", " "),
		" " + name, name + " ", "+" + name, "\u3000" + name, name + "[]", name + "[0]", name + "[a][b]", wide + "\uff3b\uff3d", name + "\x00x",
		"a;" + name, "a=1;" + name, name + ";a", "a&" + name, name + "=x", "a%3B" + name, "a%26" + name + "%3Dx"}
	escaped := "%" + strings.ToUpper(hexOf(name[0])) + name[1:]
	return append(all, escaped, url.QueryEscape(escaped), url.QueryEscape(url.QueryEscape(escaped)), url.QueryEscape(wide))
}

func hexOf(c byte) string { return string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]) }

// H10: a parameter is its owner's in every spelling that an upstream may read as
// it; a name that only resembles it is free.
func TestH10_LookAlikesOfAParameter(t *testing.T) {
	for _, own := range []string{"api_key", "key", "access_token", "sig", "apikey", "X-Api-Key"} {
		for _, name := range lookAlikes(strings.ToLower(own)) {
			if !SameParameter(name, own) {
				t.Errorf("%+q is not seen to be %s", name, own)
			}
		}
		for _, name := range []string{"", "a", own + "2", "my_" + own, "a[" + own + "]", own[1:], own + "_", strings.Repeat("%25", 50)} {
			if SameParameter(name, own) {
				t.Errorf("%+q is taken for %s", name, own)
			}
		}
	}
	for _, own := range []string{"x-amz-signature", "x-amz-credential"} {
		for _, name := range lookAlikes(strings.ReplaceAll(own, "-", "_")) {
			if !IsSigningParameter(name) {
				t.Errorf("%+q is not seen to be %s", name, own)
			}
		}
	}
	for _, name := range lookAlikes("x_http_method") {
		if r := checkFieldName("query parameter", name); r == nil {
			t.Errorf("%+q is not seen to replace the method", name)
		}
	}
}

// TestMayOverride: the quick look lets pass what the long one would refuse in no
// spelling.
func TestMayOverride(t *testing.T) {
	for name := range overrideNames {
		for _, spelled := range lookAlikes(name) {
			if !mayOverride(spelled) {
				t.Errorf("%+q is not looked at", spelled)
			}
		}
	}
	if mayOverride(strings.Repeat("p[=;+\x01.", 9)) {
		t.Error("a name without either word is looked at")
	}
}

// FuzzSameParameter: what is seen is also seen when it was escaped once more.
func FuzzSameParameter(f *testing.F) {
	for _, name := range lookAlikes("api_key") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if SameParameter(name, "api_key") && len(name) < 100 && !SameParameter(url.QueryEscape(name), "api_key") && !strings.Contains(name, "%") {
			t.Errorf("%q escaped once more is not seen", name)
		}
	})
}
