package action

import (
	"net/textproto"
	"slices"
	"strings"
)

// refusedHeaders are headers that an agent may not set, spelled as FoldHeader
// spells them: hop-by-hop and framing, where the request goes, which method
// or path an upstream reads, who asks, credentials, and those whose answer
// could not be scrubbed.
var refusedHeaders = map[string]string{
	"host":                   "the host comes from the capability",
	"x-host":                 "the host comes from the capability",
	"x-original-host":        "the host comes from the capability",
	"x-http-host-override":   "the host comes from the capability",
	"connection":             "it belongs to the connection",
	"keep-alive":             "it belongs to the connection",
	"te":                     "it belongs to the connection",
	"trailer":                "it belongs to the connection",
	"transfer-encoding":      "it belongs to the connection",
	"upgrade":                "it belongs to the connection",
	"http2-settings":         "it belongs to the connection",
	"content-length":         "it belongs to the connection",
	"expect":                 "it belongs to the connection",
	"x-http-method":          "it replaces the method",
	"x-http-method-override": "it replaces the method",
	"x-method-override":      "it replaces the method",
	"x-original-method":      "it replaces the method",
	"x-original-url":         "it replaces the path",
	"x-original-uri":         "it replaces the path",
	"x-rewrite-url":          "it replaces the path",
	"x-rewrite-uri":          "it replaces the path",
	"x-override-url":         "it replaces the path",
	"x-http-path-override":   "it replaces the path",
	"request-uri":            "it replaces the path",
	"base-url":               "it replaces the path",
	"x-tunnel-method":        "it replaces the method",
	"x-requested-method":     "it replaces the method",
	"destination":            "it names another object than the path",
	"forwarded":              "it says who asks",
	"authorization":          "the credential is set by the broker",
	"cookie":                 "the credential is set by the broker",
	"cookie2":                "the credential is set by the broker",
	"accept-encoding":        "the answer is decoded by the broker",
	"range":                  "a part of an answer cannot be searched for the credential",
	"if-range":               "a part of an answer cannot be searched for the credential",
	"request-range":          "a part of an answer cannot be searched for the credential",
	"x-ms-range":             "a part of an answer cannot be searched for the credential",
}

// refusedPrefixes are families of such headers.
var refusedPrefixes = map[string]string{
	"proxy-":             "it belongs to the connection",
	"x-forwarded-":       "it says who asks",
	"x-envoy-":           "it steers the front end: which path is served, and how often the request is sent on",
	"x-accel-":           "it replaces the path",
	"x-sendfile":         "it replaces the path",
	"x-amz-copy-source":  "it names another object than the path",
	"x-goog-copy-source": "it names another object than the path",
	"x-ms-copy-source":   "it names another object than the path",
	"x-ms-rename-source": "it names another object than the path",
}

// canonicalHeaders returns headers in canonical MIME form, sorted by name.
// Vendor and conditional headers pass.
func canonicalHeaders(in map[string]string) ([]Header, *Refusal) {
	if len(in) > maxHeaders {
		return nil, badRequest("more than %d headers", maxHeaders)
	}
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []Header
	total := 0
	seen := make(map[string]bool, len(in))
	for _, name := range names {
		if !isToken(name) {
			return nil, outside("header name %q is not an HTTP token", name)
		}
		folded := FoldHeader(name)
		if why := refusedHeader(folded); why != "" {
			return nil, outside("header %s may not be set: %s", name, why)
		}
		if seen[folded] {
			return nil, badRequest("header %s is given twice in different spellings", name)
		}
		seen[folded] = true
		value := strings.Trim(in[name], " \t")
		if !isHeaderValue(value) {
			return nil, outside("the value of header %s has a character that is not visible ASCII", name)
		}
		if total += len(name) + len(value); total > maxHeaderBytes {
			return nil, badRequest("headers are longer than %d bytes", maxHeaderBytes)
		}
		out = append(out, Header{Name: textproto.CanonicalMIMEHeaderKey(name), Value: value})
	}
	slices.SortFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func refusedHeader(folded string) string {
	if why := refusedHeaders[folded]; why != "" {
		return why
	}
	for prefix, why := range refusedPrefixes {
		if strings.HasPrefix(folded, prefix) {
			return why
		}
	}
	return ""
}

// CredentialHeader returns a header that is to carry a credential in canonical
// form, or why it may not: it must mean nothing else to the connection, to
// routing or to the upstream's reading of the message.
func CredentialHeader(name string) (canonical, why string) {
	if !isToken(name) {
		return "", "is not an HTTP token"
	}
	folded := FoldHeader(name)
	if why := refusedHeader(folded); why != "" && folded != "authorization" {
		return "", "carries no credential of this kind"
	}
	if folded == "user-agent" || folded == "accept" || strings.HasPrefix(folded, "content-") {
		return "", "carries no credential: it describes the message"
	}
	return textproto.CanonicalMIMEHeaderKey(name), ""
}

// FoldHeader spells a name as a CGI-like upstream cannot tell it apart: such
// servers hand 'X_Method.Override' and 'X-Method-Override' on as one variable.
func FoldHeader(name string) string {
	b := []byte(name)
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			b[i] = c - 'A' + 'a'
		case !isAlphanumeric(c):
			b[i] = '-'
		}
	}
	return string(b)
}

func isHeaderValue(v string) bool {
	for i := range len(v) {
		if c := v[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}
