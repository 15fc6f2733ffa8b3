package action

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

// canonicalBody returns the body as it is sent, and the content type that its
// form implies; an agent gives at most one of the four.
func canonicalBody(in HTTPInput) (body []byte, implied string, r *Refusal) {
	given := 0
	for _, is := range []bool{in.Body != nil, in.BodyBase64 != nil, in.BodyJSON != nil, in.Form != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, "", badRequest("more than one of body, body_base64, body_json and form is given")
	case in.Body != nil && *in.Body != "":
		return []byte(*in.Body), "", nil
	case in.BodyBase64 != nil && *in.BodyBase64 != "":
		body, r = decodeBase64(*in.BodyBase64)
		return body, "", r
	case in.BodyJSON != nil:
		body, r = canonicalJSON(in.BodyJSON)
		return body, jsonType, r
	case in.Form != nil:
		body, r = canonicalForm(in.Form)
		return body, formType, r
	}
	return nil, "", nil
}

func decodeBase64(text string) ([]byte, *Refusal) {
	// The decoder skips line breaks; with them one body had many spellings.
	if strings.ContainsAny(text, "\r\n") {
		return nil, badRequest("body_base64 has a line break")
	}
	body, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, badRequest("body_base64 is not standard base64 with padding")
	}
	return body, nil
}

// canonicalJSON drops the space between tokens, and the escapes that encoders
// put in for the sake of HTML: '<' and '\u003c' say the same. Numbers, the order
// of members and all other escapes stay as they were written.
func canonicalJSON(raw json.RawMessage) ([]byte, *Refusal) {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, badRequest("body_json is not JSON")
	}
	in := b.Bytes()
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' || i+1 == len(in) {
			out = append(out, in[i])
			continue
		}
		if i+6 <= len(in) && in[i+1] == 'u' {
			if c := htmlEscape(string(in[i+2 : i+6])); c != 0 {
				out = append(out, c)
				i += 5
				continue
			}
		}
		out = append(out, in[i], in[i+1]) // an escaped backslash begins no escape
		i++
	}
	return out, nil
}

func htmlEscape(digits string) byte {
	switch strings.ToLower(digits) {
	case "003c":
		return '<'
	case "003e":
		return '>'
	case "0026":
		return '&'
	}
	return 0
}

// canonicalForm writes fields as canonicalQuery writes parameters.
func canonicalForm(form map[string][]string) ([]byte, *Refusal) {
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		if r := checkFieldName("form field", name); r != nil {
			return nil, r
		}
		for _, value := range form[name] {
			if r := checkFieldValue("form field", name, value); r != nil {
				return nil, r
			}
			appendPair(&b, name, value)
		}
	}
	return []byte(b.String()), nil
}

func appendPair(b *strings.Builder, name, value string) {
	if b.Len() > 0 {
		b.WriteByte('&')
	}
	escapeInto(b, name, isUnreserved)
	b.WriteByte('=')
	escapeInto(b, value, isUnreserved)
}

// withContentType adds the header that the form of a body implies, or refuses
// one that says otherwise.
func withContentType(headers []Header, implied string) ([]Header, *Refusal) {
	if implied == "" {
		return headers, nil
	}
	for _, h := range headers {
		if h.Name != "Content-Type" {
			continue
		}
		kind := strings.ToLower(h.Value)
		if implied == jsonType && !strings.Contains(kind, "json") || implied == formType && !strings.HasPrefix(kind, formType) {
			return nil, badRequest("content-type is not that of the body's form; give the body as text instead")
		}
		return headers, nil
	}
	headers = append(headers, Header{Name: "Content-Type", Value: implied})
	slices.SortFunc(headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return headers, nil
}
