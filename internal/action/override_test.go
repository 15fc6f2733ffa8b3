package action

import (
	"strings"
	"testing"
)

var overrideSpellings = []string{
	"_method", "_METHOD", "_Method", " _method", ".method", "[method", " .method", "_method[]", "_method[0]", "-method", "_method ",
	"_HttpMethod", "$httpMethod", "$httpHeaders", "x-http-method-override", "X-HTTP-Method-Override", "x_http_method", "X-Method-Override",
}

func TestQueryOverridesAreRefused(t *testing.T) {
	for _, name := range overrideSpellings {
		wantRefusal(t, HTTPInput{Method: "POST", Query: map[string][]string{name: {"DELETE"}}}, CodeOutside)
	}
	for _, name := range []string{"method", "payment_method", "_methods", "_meth", "a[_method]"} {
		mustHTTP(t, HTTPInput{Method: "POST", Query: map[string][]string{name: {"DELETE"}}})
	}
}

func post(contentType, body string) HTTPInput {
	in := HTTPInput{Method: "POST", Path: "/", Body: &body}
	if contentType != "" {
		in.Headers = map[string]string{"Content-Type": contentType}
	}
	return in
}

func TestFormOverridesAreRefused(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, name := range append([]string{"%5fmethod", "%5Fm%65thod", "+_method", "_method%00x", "%2Emethod", "_method%5B%5D"}, overrideSpellings...) {
		wantRefusal(t, post(form, "a=1&"+name+"=DELETE"), CodeOutside)
	}
	for _, body := range []string{"_method=DELETE", "a=1;_method=DELETE", "_method", "&&_method=x", "a=%zz&_method=x"} {
		for _, kind := range []string{form, strings.ToUpper(form), form + "; charset=utf-8", "text/plain, " + form, form + ";;;=", ""} {
			wantRefusal(t, post(kind, body), CodeOutside)
		}
	}
	in := post(form, "x")
	in.Headers["Content-Encoding"] = "gzip"
	wantRefusal(t, in, CodeOutside)
	wantRefusal(t, post(form+"; charset=ibm037", "x"), CodeOutside)

	mustHTTP(t, post(form, "method=DELETE&note=_method&payment_method=card"))
	mustHTTP(t, post("text/plain", "_method=DELETE"))
	mustHTTP(t, post("application/octet-stream", "_method=DELETE"))
	mustHTTP(t, post(form+"; charset=UTF-8", "a=1"))
}

func TestMultipartOverridesAreRefused(t *testing.T) {
	const kind = "multipart/form-data; boundary=b"
	part := func(disposition string) string {
		return "--b\r\nContent-Disposition: " + disposition + "\r\n\r\nDELETE\r\n--b--\r\n"
	}
	for _, disposition := range []string{
		`form-data; name="_method"`, `form-data; name=_method`, `form-data; name="_METHOD"`, `FORM-DATA; NAME="_method"`,
		`form-data; name*=utf-8''%5Fmethod`, `form-data; name="\_method"`, `form-data; name=".method"`,
	} {
		wantRefusal(t, post(kind, part(disposition)), CodeOutside)
	}
	for _, body := range []string{
		part(`form-data; name="a"; name="_method"`), // two names
		part(`form-data; name="a`),
		"--b\r\nX: y\r\n\r\nDELETE\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=_method\r\n\r\nx\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=a\r\n\r\nx",
		"not multipart at all",
	} {
		wantRefusal(t, post(kind, body), CodeBadRequest)
	}
	wantRefusal(t, post("multipart/form-data", part(`form-data; name="a"`)), CodeBadRequest)
	wantRefusal(t, post("multipart/form-data; boundary=b; boundary=c", part(`form-data; name="a"`)), CodeBadRequest)

	mustHTTP(t, post(kind, part(`form-data; name="file"; filename="_method"`)))
	mustHTTP(t, post(`multipart/related; boundary=b`, part(`attachment; name="_method"`)))
}

func TestJSONOverridesAreRefused(t *testing.T) {
	for _, body := range []string{`{"_method":"DELETE"}`, `{"a":1,"_METHOD":"DELETE"}`, `{"\u005fmethod":"DELETE"}`} {
		for _, kind := range []string{"application/json", "application/vnd.api+json; charset=utf-8", "text/json"} {
			wantRefusal(t, post(kind, body), CodeOutside)
		}
	}
	for _, body := range []string{`{"a":{"_method":"x"}}`, `["_method"]`, `"_method"`, `{`, `{"method":"DELETE"}`} {
		mustHTTP(t, post("application/json", body))
	}
}
