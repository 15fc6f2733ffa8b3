package httpexec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/yett-broker/yett/internal/action"
)

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

func everyByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func jsonText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b[1 : len(b)-1])
}

func wideText(s string, first bool) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		if first {
			b = append(b, byte(u>>8), byte(u))
		} else {
			b = append(b, byte(u), byte(u>>8))
		}
	}
	return string(b)
}

func wrapped(s, with string) string {
	var out []string
	for c := range slices.Chunk([]byte(s), 10) {
		out = append(out, string(c))
	}
	return strings.Join(out, with)
}

// spellings are the ways in which an upstream may write s.
func spellings(s string) map[string]string {
	std, urlSafe := base64.StdEncoding, base64.RawURLEncoding
	all := map[string]string{
		"exact":                   s,
		"upper case":              strings.ToUpper(s),
		"lower case":              strings.ToLower(s),
		"reversed":                reversed(s),
		"hex":                     hex.EncodeToString([]byte(s)),
		"hex, upper":              strings.ToUpper(hex.EncodeToString([]byte(s))),
		"hex of Bearer":           hex.EncodeToString([]byte("Bearer " + s)),
		"base64 of Bearer":        std.EncodeToString([]byte("Bearer " + s)),
		"base64 of JSON":          std.EncodeToString([]byte(`{"Authorization":["Bearer ` + s + `"]}`)),
		"base64 wrapped":          wrapped(std.EncodeToString([]byte(s)), "\r\n"),
		"base64 wrapped in JSON":  jsonText(wrapped(std.EncodeToString([]byte(s)), "\n")),
		"base64 in PHP JSON":      strings.ReplaceAll(std.EncodeToString([]byte(s)), "/", `\/`),
		"base64 in URL":           url.QueryEscape(std.EncodeToString([]byte(s))),
		"query":                   url.QueryEscape(s),
		"path":                    url.PathEscape(s),
		"query, lower":            strings.ToLower(url.QueryEscape(s)),
		"every byte":              everyByte(s, "%%%02X"),
		"query twice":             url.QueryEscape(url.QueryEscape(s)),
		"JSON":                    jsonText(s),
		"JSON in JSON":            jsonText(jsonText(s)),
		"PHP JSON":                strings.ReplaceAll(jsonText(s), "/", `\/`),
		"JSON, every byte":        everyByte(s, `\u%04x`),
		"JSON, upper":             everyByte(s, `\u%04X`),
		"program text":            everyByte(s, `\x%02x`),
		"Go %q":                   fmt.Sprintf("%q", s),
		"HTML":                    html.EscapeString(s),
		"HTML twice":              html.EscapeString(html.EscapeString(s)),
		"HTML, named":             strings.ReplaceAll(html.EscapeString(s), "&#34;", "&quot;"),
		"HTML, every byte":        everyByte(s, "&#%d;"),
		"HTML, every byte in hex": everyByte(s, "&#x%x;"),
		"UTF-16 LE":               wideText(s, false),
		"UTF-16 BE":               wideText(s, true),
	}
	for i := range 3 {
		lead := strings.Repeat("x", i)
		for j := range 3 {
			tail := strings.Repeat("y", j)
			all[fmt.Sprintf("base64, %d before, %d after", i, j)] = std.EncodeToString([]byte(lead + s + tail))
			all[fmt.Sprintf("base64 for URLs, %d before, %d after", i, j)] = urlSafe.EncodeToString([]byte(lead + s + tail))
		}
	}
	return all
}

// secrets that are awkward for one or the other encoding.
var awkward = []string{
	secret,
	"0123456789abcdef0123456789abcdef",
	"sk_live_51H8xAbCdEfGhIjKl",
	`%41%25%2541\\"\/\u0041&amp;&#34;`,
	"~~~???>>>///+++===",
	"with a space in it + plus",
	"aaaaaaaaaaaa",
}

// surroundings is how many characters may be left of a spelling, since they do not
// depend on the secret: padding, quotes, and what was encoded with it.
func surroundings(name string) int {
	switch {
	case name == "base64 of JSON":
		return len(base64.StdEncoding.EncodeToString([]byte(`{"Authorization":["Bearer "]}`))) + 2
	case strings.Contains(name, "of Bearer"):
		return 2 * len("Bearer ")
	case strings.Contains(name, "before"):
		return 7
	case strings.HasPrefix(name, "base64"):
		return len("%3D%3D")
	case name == "Go %q":
		return 2
	case strings.HasPrefix(name, "UTF-16"):
		return 1
	}
	return 0
}

func TestH08_EverySpellingIsReplaced(t *testing.T) {
	for _, secret := range awkward {
		for name, text := range spellings(secret) {
			s := newScrubber([]byte(secret))
			got := string(s.bytes([]byte("before "+text+" after"), len(text)+13, false))
			left := strings.TrimSuffix(strings.TrimPrefix(got, "before "), " after")
			around := strings.Replace(left, mark, "", 1)
			if s.count != 1 || !strings.Contains(left, mark) || len(around) > surroundings(name) {
				t.Errorf("%q %s: %q became %q", secret, name, text, left)
			}
			if h := s.text("x" + text); h == "x"+text {
				t.Errorf("%q %s: header value is as it was", secret, name)
			}
		}
	}
}

func TestScrubbingLeavesOtherTextAlone(t *testing.T) {
	s := newScrubber([]byte(secret))
	for _, text := range []string{
		"", "{}", "tok-", secret[:len(secret)-1], secret[1:], `{"a":"\u00e4\n\\","b":"%20&amp;"}`, "%", "\\", "&", "&#", "&#x41", "%4", `\u00`, `\\\\\\\\\\`,
		strings.Repeat("%25", 50), base64.StdEncoding.EncodeToString([]byte("something else entirely")),
	} {
		if got := string(s.bytes([]byte(text), len(text), false)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if s.count != 0 {
		t.Errorf("counted %d", s.count)
	}
}

func TestScrubberIsWiped(t *testing.T) {
	s := newScrubber([]byte(secret))
	s.text(secret)
	s.wipe()
	for _, p := range s.patterns {
		if len(bytes.Trim(p.text, "\x00")) != 0 {
			t.Errorf("left: %q", p.text)
		}
	}
	if bytes.Contains(s.scratch[:cap(s.scratch)], []byte("tok")) {
		t.Error("the scratch buffer holds the secret")
	}
}

// echo answers with what it was sent, in the way that the path names.
func echo(c net.Conn, _ int, _ string, r *http.Request) bool {
	value := r.Header.Get("Authorization")
	token := strings.TrimPrefix(value, "Bearer ")
	switch r.URL.Path {
	case "/json":
		body, _ := json.Marshal(r.Header)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	case "/chunks": // one byte a chunk, each in its own write
		io.WriteString(c, "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
		for i := range len(value) {
			fmt.Fprintf(c, "1\r\n%c\r\n", value[i])
		}
		io.WriteString(c, "0\r\n\r\n")
	case "/gzip":
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		io.WriteString(w, "token "+token)
		w.Close()
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nContent-Length: %d\r\n\r\n%s", z.Len(), z.Bytes())
	case "/head": // everywhere but in the body
		fmt.Fprintf(c, "HTTP/1.1 403 no access with %s\r\nX-Debug: %s\r\nX-Debug: %s\r\nLocation: https://evil.test/?t=%s\r\n"+
			"Trailer: X-Trace\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nX-Trace: %s\r\n\r\n",
			token, value, hex.EncodeToString([]byte(token)), url.QueryEscape(token), token)
	case "/interim":
		fmt.Fprintf(c, "HTTP/1.1 103 %s\r\nLink: <%s>\r\n\r\n%s", token, token, ok)
	case "/encoding":
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", token, len(token), token)
	case "/name":
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nx-%x: 1\r\nContent-Length: 0\r\n\r\n", token)
	}
	return true
}

func TestH08_UpstreamReflectsTheSecret(t *testing.T) {
	s := newRawServer(t, echo)
	e := newExecutor(t)
	for _, c := range []struct {
		path     string
		redacted int
		body     string
	}{
		{"/json", 1, `{"Accept-Encoding":["gzip"],"Authorization":["Bearer ` + mark + `"],"User-Agent":["yett"]}`},
		{"/chunks", 1, "Bearer " + mark},
		{"/gzip", 1, "token " + mark},
		{"/head", 3, "no"},
		{"/interim", 0, "ok"},
		{"/encoding", 1, ""},
		{"/name", 1, ""},
	} {
		res := do(t, e, s.target(), action.HTTP{Method: "GET", Path: c.path})
		if string(res.Body) != c.body || res.Redacted != c.redacted || res.Truncated {
			t.Errorf("%s: %q, %+v", c.path, res.Body, res)
		}
		whole := fmt.Sprintf("%+v %s", res, res.Body)
		for _, bad := range spellings(secret) {
			if strings.Contains(whole, bad) {
				t.Errorf("%s: %q in %s", c.path, bad, whole)
			}
		}
	}
	res := do(t, e, s.target(), action.HTTP{Method: "GET", Path: "/head"})
	if got := header(res, "X-Debug"); !slices.Equal(got, []string{"Bearer " + mark, mark}) {
		t.Errorf("X-Debug: %q", got)
	}
	if got := header(res, "Location"); !slices.Equal(got, []string{"https://evil.test/?t=" + mark}) {
		t.Errorf("Location: %q", got)
	}
	if got := header(res, "X-Trace"); got != nil {
		t.Errorf("a trailer was handed on: %q", got)
	}
}

func TestH08_UnknownEncodingIsWithheld(t *testing.T) {
	for _, encoding := range []string{"deflate", "compress", "dcb", "gzip, deflate", "identity, aes128gcm", "gzip, gzip, gzip, gzip", "br\r\nContent-Encoding: dcz"} {
		s := newRawServer(t, answers("HTTP/1.1 200 OK\r\nContent-Encoding: "+encoding+"\r\nContent-Length: 5\r\n\r\nabcde"))
		res := do(t, newExecutor(t), s.target(), get)
		if res.Withheld == "" || res.Body != nil || header(res, "Content-Encoding") == nil || res.Status != 200 {
			t.Errorf("%q: %+v", encoding, res)
		}
	}
	s := newRawServer(t, answers("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 11\r\n\r\nplain"+"abcdef"))
	if res := do(t, newExecutor(t), s.target(), get); res.Withheld == "" || res.Body != nil {
		t.Errorf("not gzip: %+v", res)
	}
}

// No part of the secret may stand before the place where the body was cut,
// wherever the cut falls.
func TestH08_CapCutsNoEchoInHalf(t *testing.T) {
	for name, text := range spellings(secret) {
		if strings.Contains(name, "of ") || strings.Contains(name, "before") || name == "Go %q" || name == "UTF-16 BE" {
			continue // these begin with context
		}
		body := "0123456789" + text + strings.Repeat(".", 5000)
		for cut := 1; cut < 10+len(text)+2; cut++ {
			s := newScrubber([]byte(secret))
			raw := body[:min(len(body), cut+s.lookahead())]
			got := string(s.bytes([]byte(raw), cut, true))
			want := body[:min(cut, 10)]
			if cut > 10 {
				want += mark
			}
			if !strings.HasPrefix(got, want) || len(got) > len(want)+len("%3D%3D..") {
				t.Fatalf("%s cut at %d: %q, want %q", name, cut, got, want)
			}
		}
	}
	s := newRawServer(t, answers(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nabc%s", 3+len(secret), secret)))
	e := newExecutor(t)
	for limit := int64(1); limit < int64(len(secret)+5); limit++ {
		target := s.target()
		target.MaxBody = limit
		res := do(t, e, target, get)
		want := "abc"[:min(3, limit)]
		if limit > 3 {
			want += mark
		}
		if string(res.Body) != want || res.Truncated != (limit < int64(3+len(secret))) {
			t.Errorf("cap %d: %q, %+v", limit, res.Body, res)
		}
	}
}

func TestH08_BrokenConnectionLeavesNoHalfEcho(t *testing.T) {
	for n := minBegun; n < len(secret); n++ {
		s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
			fmt.Fprintf(c, "HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\nabc %s", secret[:n])
			return false
		})
		res := do(t, newExecutor(t), s.target(), action.HTTP{Method: "POST", Path: "/"})
		if res.Status != 201 || !res.Truncated || string(res.Body) != "abc "+mark || res.Redacted != 1 {
			t.Errorf("%d: %q %+v", n, res.Body, res)
		}
	}
}

func FuzzScrub(f *testing.F) {
	corpus := 0
	for _, secret := range awkward {
		for _, text := range spellings(secret) {
			f.Add([]byte(secret), []byte("a "+text+" b"), len(text)/2)
			corpus++
		}
	}
	if corpus == 0 {
		f.Fatal("the corpus is empty")
	}
	f.Fuzz(func(t *testing.T, secret, body []byte, cut int) {
		if (Credential{Kind: "bearer", Secret: secret}).Check() != nil || cut < 0 || cut > len(body) {
			return
		}
		s := newScrubber(secret)
		input := bytes.Clone(body)
		got := s.bytes(input, cut, cut < len(body))
		if s.count == 0 && !bytes.Equal(got, body[:cut]) {
			t.Errorf("changed without an echo: %q to %q", body[:cut], got)
		}
		for _, part := range bytes.Split(got, []byte(mark)) {
			if s.count > 0 && bytes.Contains(part, secret) {
				t.Errorf("secret %q left in %q", secret, got)
			}
		}
		if s.count == 0 && bytes.Contains(got, secret) {
			t.Errorf("secret %q not seen in %q", secret, got)
		}
	})
}
