package action

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of one HTTP action. They lie far above what APIs accept, and below
// what would make a card or a row unwieldy.
const (
	maxPath        = 8 << 10
	maxQuery       = 32 << 10
	maxHeaders     = 100
	maxHeaderBytes = 32 << 10
	maxMethod      = 32
)

// HTTPInput is an HTTP action as the agent wrote it.
type HTTPInput struct {
	Method, Path string
	Query        map[string][]string
	Headers      map[string]string
	Body         *string
	BodyBase64   *string
	BodyJSON     json.RawMessage
	Form         map[string][]string
}

// NewHTTP makes the canonical form of an action, or says why there is none.
// Two inputs that an upstream must read alike have the same form; an input
// that upstreams read differently has none.
func NewHTTP(in HTTPInput) (*HTTP, *Refusal) {
	method, r := canonicalMethod(in.Method)
	if r != nil {
		return nil, r
	}
	path, r := CanonicalPath(in.Path)
	if r != nil {
		return nil, r
	}
	query, r := canonicalQuery(in.Query)
	if r != nil {
		return nil, r
	}
	headers, r := canonicalHeaders(in.Headers)
	if r != nil {
		return nil, r
	}
	body, implied, r := canonicalBody(in)
	if r != nil {
		return nil, r
	}
	if headers, r = withContentType(headers, implied); r != nil {
		return nil, r
	}
	h := &HTTP{Method: method, Path: path, Query: query, Headers: headers, Body: body}
	if r := checkBodyOverride(h); r != nil {
		return nil, r
	}
	return h, nil
}

// Header returns the value of a request header and whether it is set.
func (h *HTTP) Header(name string) (string, bool) {
	for _, f := range h.Headers {
		if strings.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return "", false
}

// QueryNames returns the decoded parameter names of the query, in order.
func (h *HTTP) QueryNames() []string {
	if h.Query == "" {
		return nil
	}
	var names []string
	for pair := range strings.SplitSeq(h.Query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, lenientUnescape(name))
	}
	return names
}

// canonicalMethod folds a method to upper case. Methods are case-sensitive on
// the wire, so that 'patch' would be another method than PATCH; nobody who
// writes it means that.
func canonicalMethod(m string) (string, *Refusal) {
	if m == "" {
		return "", badRequest("method is missing")
	}
	if len(m) > maxMethod || !isToken(m) {
		return "", outside("method is not an HTTP token")
	}
	m = upperASCII(m)
	if m == "TRACE" || m == "CONNECT" || m == "TRACK" {
		return "", outside("method %s is never sent", m)
	}
	return m, nil
}

// canonicalQuery writes parameters sorted by name, values in the given order,
// everything but unreserved characters percent-encoded, a space as %20.
func canonicalQuery(q map[string][]string) (string, *Refusal) {
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		if r := checkFieldName("query parameter", name); r != nil {
			return "", r
		}
		for _, value := range q[name] {
			if r := checkFieldValue("query parameter", name, value); r != nil {
				return "", r
			}
			appendPair(&b, name, value)
			if b.Len() > maxQuery {
				return "", badRequest("query is longer than %d bytes", maxQuery)
			}
		}
	}
	return b.String(), nil
}

func checkFieldName(what, name string) *Refusal {
	switch {
	case name == "":
		return badRequest("a %s has no name", what)
	case !utf8.ValidString(name):
		return badRequest("a %s name is not UTF-8", what)
	case strings.ContainsFunc(name, unicode.IsControl):
		return badRequest("a %s name has a control character", what)
	case isOverrideName(name):
		return outside("%s %q would replace the method or the headers", what, name)
	}
	return nil
}

// checkFieldValue lets tab and line breaks pass: they travel encoded, and
// query languages and texts use them.
func checkFieldValue(what, name, value string) *Refusal {
	if !utf8.ValidString(value) {
		return badRequest("the value of %s %q is not UTF-8", what, name)
	}
	for _, c := range value {
		if unicode.IsControl(c) && c != '\t' && c != '\n' && c != '\r' {
			return badRequest("the value of %s %q has a control character", what, name)
		}
	}
	return nil
}

func badRequest(format string, args ...any) *Refusal {
	return &Refusal{Code: CodeBadRequest, Detail: fmt.Sprintf(format, args...)}
}

func outside(format string, args ...any) *Refusal {
	return &Refusal{Code: CodeOutside, Detail: fmt.Sprintf(format, args...)}
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// upperASCII, unlike strings.ToUpper, leaves letters such as U+0131 alone.
func upperASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}
