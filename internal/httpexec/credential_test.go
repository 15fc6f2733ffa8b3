package httpexec

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

// kinds is one credential of each kind, the secret parts of its value, and what
// must stand in the head of the request.
var kinds = []struct {
	name   string
	c      Credential
	parts  []string
	inHead string
}{
	{"bearer", Credential{Kind: KindBearer, Secret: []byte("tok-Zx9/Qm+41%aB7")}, []string{"tok-Zx9/Qm+41%aB7"}, "\r\nAuthorization: Bearer tok-Zx9/Qm+41%aB7\r\n"},
	{"header", Credential{Kind: KindHeader, Header: "X-Api-Key", Prefix: "key ", Secret: []byte("k3y Zx9/Qm+41%aB7")}, []string{"k3y Zx9/Qm+41%aB7"}, "\r\nX-Api-Key: key k3y Zx9/Qm+41%aB7\r\n"},
	{"basic, one value", Credential{Kind: KindBasic, Secret: []byte("ädä:pa:ss wörd/9")}, []string{"ädä:pa:ss wörd/9", "pa:ss wörd/9"},
		"\r\nAuthorization: Basic " + base64.StdEncoding.EncodeToString([]byte("ädä:pa:ss wörd/9")) + "\r\n"},
	{"basic, the user in the file", Credential{Kind: KindBasic, User: "ada@example.com", Secret: []byte("p4ss:w0rd/+")}, []string{"p4ss:w0rd/+"},
		"\r\nAuthorization: Basic " + base64.StdEncoding.EncodeToString([]byte("ada@example.com:p4ss:w0rd/+")) + "\r\n"},
	{"basic, the user is the secret", Credential{Kind: KindBasic, Secret: []byte("sk_live_4eC39HqLyjW:")}, []string{"sk_live_4eC39HqLyjW"},
		"\r\nAuthorization: Basic " + base64.StdEncoding.EncodeToString([]byte("sk_live_4eC39HqLyjW:")) + "\r\n"},
	{"query", Credential{Kind: KindQuery, Parameter: "api_key", Secret: []byte("q&=+ /%Zx9#1")}, []string{"q&=+ /%Zx9#1"}, "?a=1&api_key=q%26%3D%2B%20%2F%25Zx9%231 HTTP/1.1\r\n"},
	{"cookie", Credential{Kind: KindCookie, Cookie: "session", Secret: []byte("c00k13=/+Zx9")}, []string{"c00k13=/+Zx9"}, "\r\nCookie: session=c00k13=/+Zx9\r\n"},
	{"sigv4", Credential{Kind: KindSigV4, Service: "s3", Region: "eu-central-1", Secret: []byte("AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPx:t0ken/Zx9+12=")},
		[]string{"wJalrXUtnFEMI/K7MDENG+bPx", "t0ken/Zx9+12="}, "\r\nX-Amz-Security-Token: t0ken/Zx9+12=\r\n"},
}

// TestCredentialPlaces: each kind stands where it belongs, once, and nowhere else.
func TestCredentialPlaces(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newRawServer(t, answers(ok))
			if _, err := newExecutor(t).Do(t.Context(), s.target(), k.c, action.HTTP{Method: "GET", Path: "/v1/x", Query: "a=1"}); err != nil {
				t.Fatal(err)
			}
			head := s.heads()[0] + "\r\n"
			if strings.Count(head, k.inHead) != 1 {
				t.Errorf("the request is\n%s\nwant %q in it", head, k.inHead)
			}
			if k.c.Kind == KindSigV4 && strings.Contains(head, "wJalr") {
				t.Error("the secret key was sent")
			}
		})
	}
}

// TestH08_EchoesOfEveryKind: whatever an upstream sends back of a credential, in
// the body or in a header, in the forms in which it was sent and in its usual
// encodings, nothing of it is handed on.
func TestH08_EchoesOfEveryKind(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			var forms []string
			for _, p := range k.parts {
				reversed := []byte(p)
				slices.Reverse(reversed)
				forms = append(forms, p, url.QueryEscape(p), url.PathEscape(p), hex.EncodeToString([]byte(p)),
					base64.StdEncoding.EncodeToString([]byte(p)), base64.RawURLEncoding.EncodeToString([]byte(p)), string(reversed))
			}
			s := newRawServer(t, func(c net.Conn, _ int, head string, r *http.Request) bool {
				forms := append([]string{r.Header.Get("Authorization"), r.URL.RequestURI(), strings.ReplaceAll(head, "\r\n", "|")}, forms...)
				if _, signature, ok := strings.Cut(r.Header.Get("Authorization"), "Signature="); ok {
					forms = append(forms, signature)
				}
				body := strings.Join(forms, "\n")
				fmt.Fprintf(c, "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example%s\r\nX-Echo: %s\r\nX-Head: %s\r\nContent-Length: %d\r\n\r\n%s",
					r.URL.RequestURI(), strings.ReplaceAll(strings.Join(forms, " "), "\n", " "), strings.ReplaceAll(head, "\r\n", "|"), len(body), body)
				return true
			})
			res, err := newExecutor(t).Do(t.Context(), s.target(), k.c, action.HTTP{Method: "GET", Path: "/v1/x", Query: "a=1"})
			if err != nil {
				t.Fatal(err)
			}
			seen := bytes.Clone(res.Body)
			for _, h := range res.Headers {
				seen = append(append(append(seen, '\n'), h.Name...), h.Value...)
			}
			for _, f := range forms {
				if bytes.Contains(seen, []byte(f)) {
					t.Errorf("%q came through:\n%s", f, seen)
				}
			}
			for _, line := range strings.Split(s.heads()[0], "\r\n") { // as it was sent
				if name, value, _ := strings.Cut(line, ": "); name == "Authorization" && k.c.Kind != KindSigV4 || name == "Cookie" || name == "X-Api-Key" {
					if _, v, ok := strings.Cut(value, " "); ok {
						value = v
					}
					if bytes.Contains(seen, []byte(value)) {
						t.Errorf("%s: %q came through", name, value)
					}
				}
			}
			if at := bytes.Index(seen, []byte("Signature=")); at >= 0 && !bytes.HasPrefix(seen[at+len("Signature="):], []byte(mark)) {
				t.Errorf("a signature came through:\n%s", seen)
			}
			if res.Redacted == 0 {
				t.Error("nothing was redacted")
			}
		})
	}
}

// TestH14_UnusableValues: what cannot be sent is refused before anything is, and
// the reason says nothing of it.
func TestH14_UnusableValues(t *testing.T) {
	s := newRawServer(t, answers(ok))
	e := newExecutor(t)
	for _, c := range []Credential{
		{Kind: KindBasic, Secret: []byte("nocolon-s3cret")},
		{Kind: KindBasic, Secret: []byte("ada:sh0rt")},
		{Kind: KindBasic, User: "ada:x", Secret: []byte("p4ssw0rd1")},
		{Kind: KindBasic, User: "ada", Secret: []byte("p4ss\nw0rd1")},
		{Kind: KindBasic, User: "ada", Secret: []byte("p4ssw0rd\xff1")},
		{Kind: KindQuery, Parameter: "key", Secret: []byte("s3cret-value\n")},
		{Kind: KindQuery, Parameter: "a b", Secret: []byte("s3cret-value")},
		{Kind: KindCookie, Cookie: "a", Secret: []byte("s3cret; b=c")},
		{Kind: KindCookie, Cookie: "a", Secret: []byte("s3cret value")},
		{Kind: KindCookie, Cookie: "a;b", Secret: []byte("s3cret-value")},
		{Kind: KindCookie, Cookie: "a", Secret: []byte("s3cr3t")},
		{Kind: "mtls", Secret: []byte("s3cret-value")},
	} {
		err := refused(t, e, s.target(), c, get)
		if err.MaybeSent || strings.Contains(err.Error(), "s3cr") || strings.Contains(err.Error(), "p4ss") || strings.Contains(err.Error(), "sh0rt") {
			t.Errorf("%s %q: %v", c.Kind, c.Secret, err)
		}
	}
	if n := s.connections(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// TestH10_OwnPlaceIsTheCredentials: an agent cannot put anything where the
// credential stands, in whatever spelling.
func TestH10_OwnPlaceIsTheCredentials(t *testing.T) {
	s := newRawServer(t, answers(ok))
	e := newExecutor(t)
	query := Credential{Kind: KindQuery, Parameter: "api_key", Secret: []byte(secret)}
	cookie := Credential{Kind: KindCookie, Cookie: "s", Secret: []byte("s3cret-value")}
	signed := kinds[len(kinds)-1].c
	for _, c := range []struct {
		c Credential
		r action.HTTP
	}{
		{query, action.HTTP{Query: "api_key=mine"}},
		{query, action.HTTP{Query: "a=1&API%2Ekey=mine"}},
		{query, action.HTTP{Query: "api%5Fkey%5B%5D=mine"}},
		{query, action.HTTP{Query: "%20api_key=mine"}},
		{query, action.HTTP{Query: "api_%E2%84%AAey=mine"}},
		{query, action.HTTP{Query: "a%253Bapi_key=mine"}},
		{cookie, action.HTTP{Headers: []action.Header{{Name: "Cookie", Value: "a=b"}}}},
		{cookie, action.HTTP{Headers: []action.Header{{Name: "cOOKIE", Value: "a=b"}}}},
		{signed, action.HTTP{Headers: []action.Header{{Name: "X-Amz-Date", Value: "20300101T000000Z"}}}},
		{signed, action.HTTP{Headers: []action.Header{{Name: "x_amz.security-token", Value: "mine"}}}},
		{signed, action.HTTP{Headers: []action.Header{{Name: "X-Amz-Content-Sha256", Value: "UNSIGNED-PAYLOAD"}}}},
		{signed, action.HTTP{Query: "X-Amz-Signature=00"}},
		{signed, action.HTTP{Query: "x-amz-credential=mine"}},
		{signed, action.HTTP{Headers: []action.Header{{Name: "Authorization", Value: "mine"}}}},
	} {
		c.r.Method, c.r.Path = "GET", "/v1/x"
		if err := refused(t, e, s.target(), c.c, c.r); err.Code != CodeOutside {
			t.Errorf("%s: %+v: %v", c.c.Kind, c.r, err)
		}
	}
	if n := s.connections(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
	// Elsewhere the same names are the agent's own.
	if _, err := e.Do(t.Context(), s.target(), bearer, action.HTTP{Method: "GET", Path: "/v1/x", Query: "api_key=mine", Headers: []action.Header{{Name: "X-Amz-Date", Value: "x"}}}); err != nil {
		t.Error(err)
	}
}
