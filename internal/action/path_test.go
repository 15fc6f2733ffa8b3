package action

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCanonicalPath(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"/", "/"},
		{"/v1/invoices", "/v1/invoices"},
		{"/v1/invoices/", "/v1/invoices/"},
		{"/%76%31/a%2db", "/v1/a-b"},
		{"/a%3ab", "/a%3Ab"},
		{"/a:b", "/a:b"},
		{"/a b", "/a%20b"},
		{"/é", "/%C3%A9"},
		{"/%c3%a9", "/%C3%A9"},
		{"/100%25", "/100%25"},
		{"/100%25zz", "/100%25zz"},
		{"/a;v=1/b", "/a;v=1/b"},
		{"/.well-known/x", "/.well-known/x"},
		{"/a..b/..c/d..", "/a..b/..c/d.."},
		{"/~x/!$&'()*+,=@", "/~x/!$&'()*+,=@"},
		{"/what%3F%23", "/what%3F%23"},
		{`/[a]{b}"<>^|`, "/%5Ba%5D%7Bb%7D%22%3C%3E%5E%7C"},
	} {
		got, r := CanonicalPath(c.in)
		if r != nil || got != c.want {
			t.Errorf("CanonicalPath(%q) = %q, %v; want %q", c.in, got, r, c.want)
		}
	}
}

// refusedPaths are read as one thing by a rule and as another by some server.
var refusedPaths = []string{
	// dot segments
	"/public/../secret", "/public/..", "/./a", "/a/.", "/.", "/..",
	"/public/%2e%2e/secret", "/public/%2E./secret", "/public/.%2e", "/%2e",
	"/public/..;/secret", "/public/..;x/secret", "/public/.;/a", "/public/%2e%2e;x=1/secret", "/public/..%3B/secret", "/public/..%3bx/secret",
	"/public/.. /secret", "/public/..%20/secret", "/public/.../secret", "/public/%20/secret", "/public/..%C2%A0/secret",
	"/public/．．/secret", "/public/%EF%BC%8E%EF%BC%8E/secret", "/public/‥/secret", "/public/․․/secret", "/public/．．；x/secret",
	// encoded slashes and backslashes
	"/public%2F..%2Fsecret", "/public%2f", "/a%5Cb", "/a%5cb", `/a\b`, `\a`, `/public\..\secret`, "/a／b", "/a%EF%BC%8Fb", "/a＼b",
	// encoded twice
	"/public/%252e%252e/secret", "/a%252fb", "/a%25%32%66b", "/a%25%32fb", "/%252525", "/a%2541", "/a％2fb",
	// empty segments
	"//", "//a", "/a//b", "/a//", "/;/a", "/a/;x/b", "/a/;x", "/a/%3Bx",
	// what begins elsewhere: absolute form, authority, asterisk
	"a", "*", "http://evil.test/", "//evil.test/", "@evil.test/", ".", "..", "%2fa",
	// parameters, fragment
	"/a?b", "/a#b", "/?", "/#",
	// control characters
	"/a\x00b", "/a%00b", "/a\r\nHost: evil.test", "/a%0d%0ab", "/a\tb", "/a%7f", "/a%C2%85", "/a\x7fb",
	// not an escape, not text
	"/%", "/%2", "/%zz", "/%u002e", "/a%2", "/\xff", "/%ff", "/%c0%ae%c0%ae/a", "/%c0%af", "/%ed%a0%80",
}

func TestH05_RefusedPaths(t *testing.T) {
	if len(refusedPaths) < 50 {
		t.Fatal("the list of refused paths is not there")
	}
	for _, path := range refusedPaths {
		got, r := CanonicalPath(path)
		if r == nil {
			t.Errorf("CanonicalPath(%q) = %q; want a refusal", path, got)
		} else if r.Code != CodeOutside {
			t.Errorf("CanonicalPath(%q): code %s", path, r.Code)
		}
		if _, r := NewHTTP(HTTPInput{Method: "GET", Path: path}); r == nil || r.Code != CodeOutside {
			t.Errorf("NewHTTP with path %q: %v", path, r)
		}
	}
	for _, path := range []string{"", "/" + strings.Repeat("a", maxPath), "/" + strings.Repeat("é", maxPath/4)} {
		if _, r := CanonicalPath(path); r == nil || r.Code != CodeBadRequest {
			t.Errorf("path of %d bytes: %v", len(path), r)
		}
	}
}

// What a Go server serves for a canonical path is what the path says.
func TestH05_CanonicalPathSurvivesURLParsing(t *testing.T) {
	for _, path := range []string{"/v1/a%3Ab/é/100%25", "/a;v=1/b", "/!$&'()*+,;=:@", "/what%3F%23"} {
		canonical, r := CanonicalPath(path)
		if r != nil {
			t.Fatal(r)
		}
		u, err := url.ParseRequestURI(canonical)
		if err != nil {
			t.Fatal(err)
		}
		if u.EscapedPath() != canonical || u.RawQuery != "" || u.Host != "" {
			t.Errorf("%q is read as %q by net/url", canonical, u.EscapedPath())
		}
	}
}

func FuzzCanonicalPath(f *testing.F) {
	seeds := append([]string{"/", "/v1/invoices", "/a%3ab/%7e", "/é/100%25", "/a;v=1/b/"}, refusedPaths...)
	if len(seeds) < 50 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		once, r := CanonicalPath(in)
		if r != nil {
			return
		}
		twice, r := CanonicalPath(once)
		if r != nil || twice != once {
			t.Fatalf("canonical form %q of %q becomes %q, %v", once, in, twice, r)
		}
		if u, err := url.ParseRequestURI(once); err != nil || u.EscapedPath() != once || u.RawQuery != "" {
			t.Fatalf("%q is not read as a path: %v", once, err)
		}
		// However often an upstream decodes, no dot segment and no slash appears.
		plain := once
		for range 3 {
			if strings.Contains(plain, "//") || strings.Contains(plain, `\`) || strings.ContainsFunc(plain, unicode.IsControl) || !utf8.ValidString(plain) {
				t.Fatalf("%q decodes to %q", once, plain)
			}
			for segment := range strings.SplitSeq(plain, "/") {
				name, _, _ := strings.Cut(segment, ";")
				if name == "." || name == ".." {
					t.Fatalf("%q decodes to %q, with a dot segment", once, plain)
				}
			}
			if strings.Count(plain, "/") != strings.Count(once, "/") {
				t.Fatalf("%q decodes to %q, with another number of segments", once, plain)
			}
			plain = lenientUnescape(plain)
		}
	})
}
