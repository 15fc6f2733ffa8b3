package httpexec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// mintedBy answers a token endpoint's one request with raw bytes, and hands on
// what came.
func mintedBy(t *testing.T, q MintRequest, raw string) (m *Minted, head, body string, err error) {
	t.Helper()
	bodies := make(chan string, 4)
	s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
		b, _ := io.ReadAll(r.Body)
		bodies <- string(b)
		io.WriteString(c, raw)
		return false
	})
	m, err = newExecutor(t).Mint(t.Context(), s.target(), q)
	if n := len(s.heads()); n != 1 {
		t.Fatalf("%d requests arrived", n)
	}
	return m, s.heads()[0], <-bodies, err
}

func reply(status int, text string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(text), text)
}

const goodReply = `{"access_token":"acc3ss-token","token_type":"bearer","expires_in":"3600","refresh_token":"refr3sh-\/new"}`

func TestMintRequests(t *testing.T) {
	secret, refresh := []byte("s3cret +/%&"), []byte("refr3sh=&old")
	for _, c := range []struct {
		name          string
		q             MintRequest
		authorization string
		body          string
	}{
		{"client, basic", MintRequest{Path: "/t", ClientID: "a:b", ClientSecret: secret, Auth: AuthBasic, Scopes: []string{"r", "w:x"}},
			base64.StdEncoding.EncodeToString([]byte("a%3Ab:s3cret%20%2B%2F%25%26")), "grant_type=client_credentials&scope=r%20w%3Ax"},
		{"client, post", MintRequest{Path: "/t", ClientID: "a", ClientSecret: secret, Auth: AuthPost, Audience: "https://x/"},
			"", "grant_type=client_credentials&audience=https%3A%2F%2Fx%2F&client_id=a&client_secret=s3cret%20%2B%2F%25%26"},
		{"refresh, public", MintRequest{Path: "/t", ClientID: "a", Auth: AuthNone, RefreshToken: refresh},
			"", "grant_type=refresh_token&refresh_token=refr3sh%3D%26old&client_id=a"},
	} {
		m, head, body, err := mintedBy(t, c.q, reply(200, goodReply))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if body != c.body || !strings.HasPrefix(head, "POST /t HTTP/1.1\r\n") || strings.Contains(head, "Authorization: Basic "+c.authorization) != (c.authorization != "") {
			t.Errorf("%s: the request is\n%s\n\n%s", c.name, head, body)
		}
		if string(m.Access) != "acc3ss-token" || string(m.Refresh) != "refr3sh-/new" || m.Lives != time.Hour {
			t.Errorf("%s: minted %q, %q, %v", c.name, m.Access, m.Refresh, m.Lives)
		}
		m.Wipe()
		if strings.Trim(string(m.Access)+string(m.Refresh), "\x00") != "" {
			t.Errorf("%s: wiping left %q, %q", c.name, m.Access, m.Refresh)
		}
	}
}

// TestA09_MintErrors: what a token endpoint answers that is no token is named in
// our own words; nothing of the answer is repeated, since it may be an echo.
func TestA09_MintErrors(t *testing.T) {
	const echo = "refr3sh=&old"
	q := MintRequest{Path: "/t", ClientID: "a", Auth: AuthNone, RefreshToken: []byte(echo)}
	for _, c := range []struct {
		name, raw string
		code      string // of a refusal
		says      string
		maybeSent bool
	}{
		{"a known refusal", reply(400, `{"error":"invalid_grant","error_description":"`+echo+`"}`), "invalid_grant", "invalid_grant", false},
		{"a refusal with status 200", reply(200, `{"error":"bad_refresh_token"}`), "bad_refresh_token", "bad_refresh_token", false},
		{"an echo as the code", reply(400, `{"error":"`+echo+`"}`), "", "status 400", false},
		{"not JSON", reply(500, echo), "", "status 500", false},
		{"a redirect", "HTTP/1.1 302 X\r\nLocation: https://evil.example/" + echo + "\r\nContent-Length: 0\r\n\r\n", "", "status 302", false},
		{"no token", reply(200, `{"token_type":"bearer"}`), "", "no access token", true},
		{"a token that is no string", reply(200, `{"access_token":{"a":"`+echo+`"}}`), "", "no access token", true},
		{"another type of token", reply(200, `{"access_token":"acc3ss-token","token_type":"DPoP"}`), "", "no bearer token", true},
		{"a token that ends the header", reply(200, `{"access_token":"acc3ss\r\nX: y"}`), "", "cannot be sent", true},
		{"too long", reply(200, `{"access_token":"`+strings.Repeat("a", maxMintAnswer)+`"}`), "", "too long", true},
		{"no answer", "", "", "closed the connection", true},
		{"half an answer", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + `{"access_token":"acc3ss`, "", "no access token", true},
	} {
		_, _, _, err := mintedBy(t, q, c.raw)
		var refusal *MintError
		var e *Error
		switch {
		case err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), echo) || strings.Contains(err.Error(), "acc3ss"):
			t.Errorf("%s: %v; want …%s…", c.name, err, c.says)
		case errors.As(err, &refusal):
			if refusal.Code != c.code || c.maybeSent {
				t.Errorf("%s: %+v", c.name, refusal)
			}
		case !errors.As(err, &e) || e.MaybeSent != c.maybeSent:
			t.Errorf("%s: %+v", c.name, err)
		}
	}
}

// TestMintIsBounded: where a token endpoint is blocked or its session has ended,
// nothing is sent.
func TestMintIsBounded(t *testing.T) {
	s := newRawServer(t, answers(reply(200, goodReply)))
	q := MintRequest{Path: "/t", ClientID: "a", Auth: AuthPost, ClientSecret: []byte("s3cret-value")}
	target := s.target()
	target.Begin = func() error { return errors.New("ended") }
	if _, err := newExecutor(t).Mint(t.Context(), target, q); err == nil {
		t.Error("it was sent although it may not begin")
	}
	own := newExecutor(t, func(o *Options) { o.OwnPorts = func() []int { return []int{s.port()} } })
	var e *Error
	if _, err := own.Mint(t.Context(), s.target(), q); !errors.As(err, &e) || e.Code != CodeTargetBlocked {
		t.Errorf("Yett's own port: %v", err)
	}
	if n := len(s.heads()); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}
