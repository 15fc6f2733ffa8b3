package httpexec

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

// TestHeaderCredential: the value stands in its own header, once, behind its
// prefix, and no Authorization goes with it.
func TestHeaderCredential(t *testing.T) {
	s := newRawServer(t, answers(ok))
	for _, c := range []Credential{
		{Kind: "header", Header: "X-Api-Key", Secret: []byte(secret)},
		{Kind: "header", Header: "Authorization", Prefix: "Token token=", Secret: []byte(secret)},
	} {
		if _, err := newExecutor(t).Do(t.Context(), s.target(), c, get); err != nil {
			t.Fatal(err)
		}
		heads := s.heads()
		head := heads[len(heads)-1]
		if strings.Count(head, secret) != 1 || !strings.Contains(head, "\r\n"+c.Header+": "+c.Prefix+secret) || strings.Contains(head, "Bearer") {
			t.Errorf("%s", head)
		}
	}
}

// TestHeaderCredentialEchoes: echoes of the value are replaced in whatever the
// header that carried it, and so are those of the whole header in base64.
func TestHeaderCredentialEchoes(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
		v := r.Header.Get("Authorization")
		body := fmt.Sprintf(`{"plain":%q,"base64":%q,"upper":%q}`, v, base64.StdEncoding.EncodeToString([]byte(v)), strings.ToUpper(v))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Echo: %s\r\nContent-Length: %d\r\n\r\n%s", v, len(body), body)
		return true
	})
	c := Credential{Kind: "header", Header: "Authorization", Prefix: "Token ", Secret: []byte("lin_api_0123456789abcdef")}
	res, err := newExecutor(t).Do(t.Context(), s.target(), c, get)
	if err != nil {
		t.Fatal(err)
	}
	seen := fmt.Sprint(res.Headers, string(res.Body))
	for _, leak := range []string{"lin_api", "LIN_API", "0123456789abcdef", base64.StdEncoding.EncodeToString([]byte("Token lin_api_0123456789abcdef"))[8:24]} {
		if strings.Contains(seen, leak) {
			t.Errorf("%q is left in %s", leak, seen)
		}
	}
	if res.Redacted != 4 {
		t.Errorf("%d echoes replaced", res.Redacted)
	}
}

// TestHeaderCredentialIsGuarded: what reaches the executor with a second value
// for that header, or with a header that ends the line, is not sent.
func TestHeaderCredentialIsGuarded(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
		io.WriteString(c, ok)
		return true
	})
	c := Credential{Kind: "header", Header: "X-Api-Key", Secret: []byte(secret)}
	for _, name := range []string{"X-Api-Key", "x_api_key", "X.API-Key"} {
		r := get
		r.Headers = []action.Header{{Name: name, Value: "mine"}}
		if err := refused(t, newExecutor(t), s.target(), c, r); err.Code != CodeOutside {
			t.Errorf("%s: %+v", name, err)
		}
	}
	for _, bad := range []Credential{
		{Kind: "header", Secret: []byte(secret)},
		{Kind: "header", Header: "X: y\r\nZ", Secret: []byte(secret)},
		{Kind: "header", Header: "X-Api-Key", Prefix: "a\r\nHost: b", Secret: []byte(secret)},
	} {
		noSecret(t, refused(t, newExecutor(t), s.target(), bad, get), "tok-")
	}
	if n := s.connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// TestHeaderCredentialConnections: a connection that carried a value in one
// header is not used for the same value in another.
func TestHeaderCredentialConnections(t *testing.T) {
	s := newRawServer(t, answers(ok))
	e := newExecutor(t)
	for _, header := range []string{"X-One", "X-Two", "X-One"} {
		if _, err := e.Do(t.Context(), s.target(), Credential{Kind: "header", Header: header, Secret: []byte(secret)}, get); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}
