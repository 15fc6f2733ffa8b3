package action

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"unicode"
)

// overrideNames are parameters by which web frameworks and API gateways let a
// request say 'read me as another method' or 'add these headers', spelled as
// FoldParameter spells them: Rack, Symfony and Laravel (_method), Salesforce
// (_HttpMethod), Firebase (x-http-method-override), Google ($httpHeaders).
var overrideNames = map[string]bool{
	"_method":                true,
	"_http_method":           true,
	"_httpmethod":            true,
	"$httpmethod":            true,
	"$httpheaders":           true,
	"x_http_method":          true,
	"x_http_method_override": true,
	"x_method_override":      true,
}

func isOverrideName(name string) bool {
	return mayOverride(name) && AnyReading(name, func(folded string) bool { return overrideNames[folded] })
}

// mayOverride is a quick look, since a body that is no form at all may be one long
// name. Each of overrideNames has one of two words in it, and nothing but escapes
// and characters beyond ASCII spells a letter otherwise than in its two cases.
func mayOverride(name string) bool {
	begins := func(at int, word string) bool {
		return len(name)-at >= len(word) && strings.EqualFold(name[at:at+len(word)], word)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c == '%', c > unicode.MaxASCII:
			return true
		case c|0x20 == 'm' && begins(i, "method"), c|0x20 == 'h' && begins(i, "headers"):
			return true
		}
	}
	return false
}

// checkBodyOverride refuses a body that an upstream could read as a form in
// which a field replaces the method. A body without a content type counts as a
// form, because Rack reads it as one.
func checkBodyOverride(h *HTTP) *Refusal {
	if len(h.Body) == 0 {
		return nil
	}
	header, has := h.Header("Content-Type")
	kind := strings.ToLower(header)
	encoding, _ := h.Header("Content-Encoding")
	form := !has || strings.Contains(kind, "form")
	if form && encoding != "" && !strings.EqualFold(encoding, "identity") {
		return outside("a form body with a content encoding cannot be read")
	}
	switch {
	case strings.Contains(kind, "multipart/"):
		return checkMultipart(header, h.Body)
	case strings.Contains(kind, "json"):
		return checkJSON(h.Body)
	case form:
		if !has && json.Valid(h.Body) { // read as what it looks like, too
			if refusal := checkJSON(h.Body); refusal != nil {
				return refusal
			}
		}
		if strings.Contains(kind, "charset") && !strings.Contains(kind, "utf-8") && !strings.Contains(kind, "ascii") && !strings.Contains(kind, "iso-8859-1") {
			return outside("a form body in another character set than UTF-8 cannot be read")
		}
		return checkForm(string(h.Body))
	}
	return nil
}

// checkForm splits at ';' too, as older parsers do.
func checkForm(body string) *Refusal {
	for pair := range strings.SplitSeq(strings.ReplaceAll(body, ";", "&"), "&") {
		name, _, _ := strings.Cut(pair, "=")
		if name = lenientUnescape(strings.ReplaceAll(name, "+", " ")); isOverrideName(name) {
			return outside("form field %q would replace the method or the headers", name)
		}
	}
	return nil
}

// checkMultipart reads the field names of a form. One that cannot be read to
// its end is refused: another parser may find fields in it.
func checkMultipart(contentType string, body []byte) *Refusal {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return badRequest("content-type of a multipart body cannot be read")
	}
	if media != "multipart/form-data" {
		return nil
	}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return badRequest("multipart body cannot be read")
		}
		dispositions := part.Header.Values("Content-Disposition")
		if len(dispositions) != 1 {
			return badRequest("a part of the multipart body has no single content-disposition")
		}
		_, params, err := mime.ParseMediaType(dispositions[0])
		if err != nil {
			return badRequest("a content-disposition of the multipart body cannot be read")
		}
		// Go keeps a backslash before any other character than a quote; others drop it.
		if name := strings.ReplaceAll(params["name"], `\`, ""); isOverrideName(name) {
			return outside("form field %q would replace the method or the headers", name)
		}
	}
}

// checkJSON looks at the members of the outermost object: Laravel takes its
// method override from there. What is not JSON passes: no such framework reads
// it either.
func checkJSON(body []byte) *Refusal {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	for name := range members {
		if isOverrideName(name) {
			return outside("member %q would replace the method or the headers", name)
		}
	}
	return nil
}

// lenientUnescape decodes what can be decoded and keeps the rest.
func lenientUnescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			if v, ok := unhex(s[i+1:]); ok {
				b.WriteByte(v)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
