package action

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBodyForms(t *testing.T) {
	for _, c := range []struct {
		name       string
		in         HTTPInput
		body, kind string
	}{
		{"JSON", HTTPInput{BodyJSON: json.RawMessage("{ \"b\": [1.50, 2e3],\n\"a\": \"x y\" }")}, `{"b":[1.50,2e3],"a":"x y"}`, jsonType},
		{"JSON of a sort", HTTPInput{BodyJSON: json.RawMessage(`[1]`), Headers: map[string]string{"content-type": "application/merge-patch+json"}}, `[1]`, "application/merge-patch+json"},
		{"JSON escaped for HTML", HTTPInput{BodyJSON: json.RawMessage(`{"a":"\u003cb\u003E \u0026 \\u003c \n"}`)}, `{"a":"<b> & \\u003c \n"}`, jsonType},
		{"form", HTTPInput{Form: map[string][]string{"b": {"2", "1"}, "a": {"x y&=ä\n"}}}, "a=x%20y%26%3D%C3%A4%0A&b=2&b=1", formType},
		{"empty form", HTTPInput{Form: map[string][]string{}}, "", formType},
		{"text", HTTPInput{Body: text("<a/>"), Headers: map[string]string{"Content-Type": "text/xml"}}, "<a/>", "text/xml"},
	} {
		c.in.Method, c.in.Path = "POST", "/v1/x"
		h := mustHTTP(t, c.in)
		kind, _ := h.Header("Content-Type")
		if string(h.Body) != c.body || kind != c.kind {
			t.Errorf("%s: %q as %q; want %q as %q", c.name, h.Body, kind, c.body, c.kind)
		}
	}
	one := text("x")
	raw := json.RawMessage(`{}`)
	form := map[string][]string{"a": {"b"}}
	for _, c := range []struct {
		in      HTTPInput
		code    string
		message string
	}{
		{HTTPInput{Body: one, BodyJSON: raw}, CodeBadRequest, "more than one"},
		{HTTPInput{Form: form, BodyJSON: raw}, CodeBadRequest, "more than one"},
		{HTTPInput{Form: form, BodyBase64: text("YQ==")}, CodeBadRequest, "more than one"},
		{HTTPInput{BodyJSON: json.RawMessage(`{`)}, CodeBadRequest, "not JSON"},
		{HTTPInput{BodyJSON: raw, Headers: map[string]string{"Content-Type": "text/plain"}}, CodeBadRequest, "content-type"},
		{HTTPInput{Form: form, Headers: map[string]string{"Content-Type": "application/json"}}, CodeBadRequest, "content-type"},
		{HTTPInput{BodyJSON: json.RawMessage(`{"_method":"DELETE"}`)}, CodeOutside, "replace the method"},
		{HTTPInput{Form: map[string][]string{"_method": {"DELETE"}}}, CodeOutside, "replace the method"},
		{HTTPInput{Form: map[string][]string{" _METHOD[]": {"DELETE"}}}, CodeOutside, "replace the method"},
		{HTTPInput{Form: map[string][]string{"": {"x"}}}, CodeBadRequest, "no name"},
		{HTTPInput{Form: map[string][]string{"a": {"\x00"}}}, CodeBadRequest, "control character"},
	} {
		c.in.Method, c.in.Path = "POST", "/v1/x"
		_, r := NewHTTP(c.in)
		if r == nil || r.Code != c.code || !strings.Contains(r.Detail, c.message) {
			t.Errorf("%+v: %+v; want %s …%s…", c.in, r, c.code, c.message)
		}
	}
}
