package httpexec

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

func isPrefix(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// fixedHeaders are those that an agent may not set: they frame the message,
// name the host, carry the credential, change what the upstream takes the
// method, path or object to be, have a front end send it on twice, or cut an echo
// into pieces too small to be found.
var fixedHeaders = map[string]bool{
	"host": true, "connection": true, "proxy-connection": true, "keep-alive": true,
	"te": true, "trailer": true, "transfer-encoding": true, "content-length": true,
	"upgrade": true, "http2-settings": true, "expect": true,
	"authorization": true, "proxy-authorization": true,
	"range": true, "if-range": true, "request-range": true, "x-ms-range": true,
	"x-http-method": true, "x-http-method-override": true, "x-method-override": true,
	"x-requested-method": true, "x-original-url": true, "x-rewrite-url": true, "destination": true,
}

// fixedPrefixes are families of such headers: by them a front end serves, or a
// store copies, another object than that of the path.
var fixedPrefixes = []string{"x-envoy-", "x-accel-", "x-sendfile",
	"x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source", "x-ms-rename-source"}

// isFixed asks in the spelling of action.FoldHeader: some servers read an
// underscore in a header name as a hyphen.
func isFixed(folded string) bool {
	return fixedHeaders[folded] || slices.ContainsFunc(fixedPrefixes, func(p string) bool { return strings.HasPrefix(folded, p) })
}

// checkRequest refuses what has no place in a canonical action. The access
// rules refuse the same earlier and with better words; here it guards the wire.
func checkRequest(r action.HTTP, c Credential) error {
	if !isToken(r.Method) || r.Method == "CONNECT" || r.Method == "TRACE" {
		return outside("the method is not one that is sent")
	}
	if !strings.HasPrefix(r.Path, "/") || strings.ContainsAny(r.Path, "?\\") || !isTarget(r.Path) {
		return outside("the path is not in canonical form")
	}
	if !isTarget(r.Query) {
		return outside("the query is not in canonical form")
	}
	if slices.ContainsFunc(r.QueryNames(), c.ownsParameter) {
		return outside("a query parameter belongs to the credential")
	}
	for _, h := range r.Headers {
		if !isToken(h.Name) {
			return outside("a header name is not a token")
		}
		if isFixed(action.FoldHeader(h.Name)) || c.owns(h.Name) {
			return outside("header " + h.Name + " is not set by agents")
		}
		for i := range len(h.Value) {
			if c := h.Value[i]; c < 0x20 && c != '\t' || c == 0x7f {
				return outside("the value of header " + h.Name + " has a control character in it")
			}
		}
	}
	return nil
}

// isTarget reports whether s may stand in a request line.
func isTarget(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// request is one request as it goes over the wire, whatever the version of HTTP.
// It holds secrets: whoever composed it wipes it.
type request struct {
	method string
	target []byte  // path and query
	fields []field // in their order; Host and what belongs to a connection stand apart
	body   []byte  // the agent's, not to be changed

	echoes [][]byte // what the answer is searched for; wiped or lent
	wiped  [][]byte // what is to be cleared
}

// field is a header: its value is text, with a secret behind it or none.
type field struct {
	name, text string
	secret     []byte
}

// compose makes the request of an action that was found good, with the
// credential in its place.
func compose(t Target, c Credential, r action.HTTP, now time.Time) (*request, error) {
	w := &request{method: r.Method, body: r.Body}
	w.fields = make([]field, 0, len(r.Headers)+8)
	// One piece, never grown: a grown buffer leaves a copy of the secret.
	w.target = w.own(len(r.Path) + len(r.Query) + len(c.Parameter) + 3*len(c.Secret) + 3)
	w.target = append(w.target, r.Path...)
	if r.Query != "" {
		w.target = append(w.target, '?')
		w.target = append(w.target, r.Query...)
	}
	agent := false
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, "Accept-Encoding") {
			continue // what we cannot decode we could not scrub
		}
		agent = agent || strings.EqualFold(h.Name, "User-Agent")
		w.text(h.Name, h.Value)
	}
	if !agent {
		w.text("User-Agent", "yett")
	}
	if r.Method == "HEAD" {
		w.text("Accept-Encoding", "identity")
	} else {
		w.text("Accept-Encoding", "gzip")
	}
	if err := c.place(w, t, r, now); err != nil {
		w.wipe()
		return nil, notSent(err)
	}
	if len(r.Body) > 0 || r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH" {
		w.text("Content-Length", strconv.Itoa(len(r.Body)))
	}
	return w, nil
}

func (w *request) text(name, value string) {
	w.fields = append(w.fields, field{name: name, text: value})
}

func (w *request) secret(name, prefix string, value []byte) {
	w.fields = append(w.fields, field{name, prefix, value})
}

// own returns room that is wiped with the request.
func (w *request) own(size int) []byte {
	b := make([]byte, 0, size)
	w.wiped = append(w.wiped, b[:size])
	return b
}

// parameter puts a secret behind the query.
func (w *request) parameter(name string, value []byte) {
	if bytes.IndexByte(w.target, '?') < 0 {
		w.target = append(w.target, '?')
	} else {
		w.target = append(w.target, '&')
	}
	w.target = append(append(w.target, name...), '=')
	w.target = appendEscaped(w.target, value)
}

// appendEscaped escapes all but the unreserved characters of RFC 3986.
func appendEscaped(b, value []byte) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range value {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

func (w *request) wipe() {
	for _, b := range w.wiped {
		clear(b)
	}
}

// message returns the request in HTTP/1.1, without the body. The caller wipes
// it. room is spare capacity for a body.
func (w *request) message(t Target, room int) []byte {
	size := 128 + len(w.method) + len(w.target) + len(t.Host) + room
	for _, f := range w.fields {
		size += len(f.name) + len(f.text) + len(f.secret) + 4
	}
	b := make([]byte, 0, size) // never grown, see compose
	b = append(b, w.method...)
	b = append(b, ' ')
	b = append(b, w.target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, t.authority()...)
	b = append(b, "\r\n"...)
	for _, f := range w.fields {
		b = append(b, f.name...)
		b = append(b, ": "...)
		b = append(b, f.text...)
		b = append(b, f.secret...)
		b = append(b, "\r\n"...)
	}
	if !isSafe(w.method) {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}
