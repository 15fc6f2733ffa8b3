package action

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func text(s string) *string { return &s }

func mustHTTP(t *testing.T, in HTTPInput) *HTTP {
	t.Helper()
	if in.Method == "" {
		in.Method = "GET"
	}
	if in.Path == "" {
		in.Path = "/"
	}
	h, r := NewHTTP(in)
	if r != nil {
		t.Fatalf("NewHTTP(%+v): %s: %s", in, r.Code, r.Detail)
	}
	return h
}

func wantRefusal(t *testing.T, in HTTPInput, code string) {
	t.Helper()
	if in.Method == "" {
		in.Method = "GET"
	}
	if in.Path == "" {
		in.Path = "/"
	}
	h, r := NewHTTP(in)
	switch {
	case r == nil:
		t.Errorf("NewHTTP(%+v) = %+v; want %s", in, h, code)
	case r.Code != code:
		t.Errorf("NewHTTP(%+v): %s: %s; want %s", in, r.Code, r.Detail, code)
	case r.Detail == "" || h != nil:
		t.Errorf("NewHTTP(%+v): refusal without a cause, or with a form", in)
	}
}

func TestMethods(t *testing.T) {
	for in, want := range map[string]string{"GET": "GET", "patch": "PATCH", "Propfind": "PROPFIND", "M-SEARCH": "M-SEARCH"} {
		if h := mustHTTP(t, HTTPInput{Method: in}); h.Method != want {
			t.Errorf("method %q became %q", in, h.Method)
		}
	}
	for _, m := range []string{"TRACE", "trace", "TrAcE", "CONNECT", "connect", "TRACK", "GE T", "GET\r\nX: y", "GET ", " GET", "GET\x00", "G\u0131T", "GET/", strings.Repeat("A", 33)} {
		wantRefusal(t, HTTPInput{Method: m}, CodeOutside)
	}
	if _, r := NewHTTP(HTTPInput{Path: "/"}); r == nil || r.Code != CodeBadRequest {
		t.Errorf("no method: %v", r)
	}
}

func TestQueryHasOneForm(t *testing.T) {
	h := mustHTTP(t, HTTPInput{Query: map[string][]string{
		"z": {"1"}, "a b": {"x y", "+&=%", "é"}, "empty": {""}, "none": {}, "a": {"2", "1"}, "line": {"a\nb"},
	}})
	want := "a=2&a=1&a%20b=x%20y&a%20b=%2B%26%3D%25&a%20b=%C3%A9&empty=&line=a%0Ab&z=1"
	if h.Query != want {
		t.Errorf("query %q\nwant  %q", h.Query, want)
	}
	back, err := url.ParseQuery(h.Query)
	if err != nil || !slices.Equal(back["a b"], []string{"x y", "+&=%", "é"}) {
		t.Errorf("query is read back as %v, %v", back, err)
	}
	if got := h.QueryNames(); !slices.Equal(got, []string{"a", "a", "a b", "a b", "a b", "empty", "line", "z"}) {
		t.Errorf("names %q", got)
	}
	for name, value := range map[string]string{"": "x", "a\x00": "", "a\n": "", "\xff": "", "ok": "a\x00", "ok2": "\xff", "ok3": "\x1b[2J", "big": strings.Repeat(" ", maxQuery/3+1)} {
		wantRefusal(t, HTTPInput{Query: map[string][]string{name: {value}}}, CodeBadRequest)
	}
}

func FuzzQueryHasOneForm(f *testing.F) {
	f.Add("page", "2")
	f.Add("a b", "+&=%;#\u00e9")
	f.Add("[x].y", "")
	f.Fuzz(func(t *testing.T, name, value string) {
		q, r := canonicalQuery(map[string][]string{name: {value}})
		if r != nil {
			return
		}
		back, err := url.ParseQuery(q)
		if err != nil || len(back) != 1 || len(back[name]) != 1 || back[name][0] != value {
			t.Fatalf("%q=%q becomes %q and is read back as %v, %v", name, value, q, back, err)
		}
	})
}

func TestBodies(t *testing.T) {
	if h := mustHTTP(t, HTTPInput{Method: "POST", Body: text("a=1")}); string(h.Body) != "a=1" {
		t.Errorf("body %q", h.Body)
	}
	raw := []byte{0, 1, 0xff}
	if h := mustHTTP(t, HTTPInput{Method: "POST", BodyBase64: text(base64.StdEncoding.EncodeToString(raw))}); !slices.Equal(h.Body, raw) {
		t.Errorf("body %v", h.Body)
	}
	a := Request{HTTP: mustHTTP(t, HTTPInput{Method: "POST", Body: text("")})}
	b := Request{HTTP: mustHTTP(t, HTTPInput{Method: "POST", BodyBase64: text("")})}
	c := Request{HTTP: mustHTTP(t, HTTPInput{Method: "POST"})}
	if a.Digest() != b.Digest() || b.Digest() != c.Digest() {
		t.Error("an empty body has more than one form")
	}
	wantRefusal(t, HTTPInput{Body: text("a"), BodyBase64: text("YQ==")}, CodeBadRequest)
	wantRefusal(t, HTTPInput{Body: text(""), BodyBase64: text("")}, CodeBadRequest)
	for _, s := range []string{"YQ", "YQ=", "YR==", "Y Q==", "YQ==\n", "Y\r\nQ==", "_-==", "!"} {
		wantRefusal(t, HTTPInput{BodyBase64: &s}, CodeBadRequest)
	}
}

// One action, one digest, in whatever way the agent spelled it.
func TestEqualActionsHaveEqualDigests(t *testing.T) {
	a := mustHTTP(t, HTTPInput{Method: "get", Path: "/%7ea/%c3%a9", Query: map[string][]string{"b": {"1"}, "a": {"2"}},
		Headers: map[string]string{"x-version": " 1 ", "ACCEPT": "text/plain"}})
	b := mustHTTP(t, HTTPInput{Method: "GET", Path: "/~a/é", Query: map[string][]string{"a": {"2"}, "b": {"1"}},
		Headers: map[string]string{"Accept": "text/plain", "X-Version": "1"}})
	if (Request{HTTP: a}).Digest() != (Request{HTTP: b}).Digest() {
		t.Errorf("%+v and %+v differ", a, b)
	}
	if a.Headers[0].Name != "Accept" || a.Headers[1].Name != "X-Version" || a.Headers[1].Value != "1" {
		t.Errorf("headers %+v", a.Headers)
	}
}

// H04: the agent names neither the host nor the way to it.
func TestH04_HeadersThatNameAnotherPlace(t *testing.T) {
	for _, name := range []string{"Host", "host", "HOST", "X-Host", "X-Forwarded-Host", "x-forwarded-anything", "Forwarded",
		"X-Original-URL", "X_Original_URL", "x-original-uri", "X-Rewrite-URL", "x.rewrite.url", "X-Original-Host", "X-HTTP-Host-Override"} {
		wantRefusal(t, HTTPInput{Headers: map[string]string{name: "evil.test"}}, CodeOutside)
	}
	for _, name := range []string{":authority", ":path", "Host ", " Host", "Host\r\nX", "Host:", "", "Hõst", "Host\x00"} {
		wantRefusal(t, HTTPInput{Headers: map[string]string{name: "evil.test"}}, CodeOutside)
	}
}

func TestRefusedHeaders(t *testing.T) {
	names := []string{
		"Connection", "Proxy-Connection", "proxy-anything", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Expect", "HTTP2-Settings", "X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override",
		"X-Requested-Method", "Destination", "X-Accel-Redirect", "X-Accel-Mapping", "X-Sendfile", "X-Sendfile-Type", "X-Envoy-Original-Path",
		"X-Amz-Copy-Source", "X-Amz-Copy-Source-Range", "X-Amz-Copy-Source-If-Match", "X-Goog-Copy-Source", "X-Ms-Copy-Source", "X-Ms-Rename-Source",
		"Authorization", "Proxy-Authorization", "Cookie", "Cookie2", "Accept-Encoding", "Range", "If-Range", "Request-Range", "X-Ms-Range",
		"X-Envoy-Retry-On", "X-Envoy-Max-Retries", "X-Envoy-Hedge-On-Per-Try-Timeout",
	}
	for _, name := range names {
		for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", ".")} {
			wantRefusal(t, HTTPInput{Headers: map[string]string{spelling: "x"}}, CodeOutside)
		}
	}
	for _, value := range []string{"a\r\nAuthorization: x", "a\nb", "a\rb", "a\x00b", "é", "\x7f", "a\u2028b", "\x1b[2J"} {
		wantRefusal(t, HTTPInput{Headers: map[string]string{"X-Note": value}}, CodeOutside)
	}
	wantRefusal(t, HTTPInput{Headers: map[string]string{"X-Note": "1", "x-note": "2"}}, CodeBadRequest)
	wantRefusal(t, HTTPInput{Headers: map[string]string{"X-Note": "1", "X_Note": "2"}}, CodeBadRequest)
	wantRefusal(t, HTTPInput{Headers: map[string]string{"X-Note": strings.Repeat("a", maxHeaderBytes)}}, CodeBadRequest)
}

// H21: what an API may demand passes.
func TestH21_VendorAndConditionalHeadersPass(t *testing.T) {
	in := map[string]string{
		"x-version": "1", "If-Match": `"abc"`, "If-None-Match": "*", "If-Modified-Since": "Tue, 15 Nov 1994 12:45:26 GMT",
		"Content-MD5": "Q2hlY2s=", "Accept": "application/vnd.github+json", "Content-Type": "application/json",
		"User-Agent": "agent/1", "Idempotency-Key": "7", "X-GitHub-Api-Version": "2022-11-28", "Prefer": "return=minimal",
		"Accept-Language": "de", "X-Requested-With": "curl", "X-Amz-Storage-Class": "STANDARD", "X-Empty": "", "Content-Range": "bytes 0-1/2", "my_header": "a\tb",
	}
	h := mustHTTP(t, HTTPInput{Method: "PUT", Headers: in})
	if len(h.Headers) != len(in) {
		t.Fatalf("%d of %d headers", len(h.Headers), len(in))
	}
	for name, value := range in {
		if got, ok := h.Header(name); !ok || got != value {
			t.Errorf("header %s is %q, %v", name, got, ok)
		}
	}
	if !slices.IsSortedFunc(h.Headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("headers are not sorted")
	}
}
