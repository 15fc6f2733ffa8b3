package yetttest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// tokenServer is an authorization server and the API behind it. It rotates
// refresh tokens, and takes a second use of one for theft: then the whole family
// of the client is revoked. What it refuses it repeats, secrets and all.
type tokenServer struct {
	endpoint, api *httptest.Server

	mu      sync.Mutex
	clients map[string]*tokenClient
	issued  []string // every token and secret there ever was
}

// tokenClient is one client, which has one family of tokens. Its name is its id.
type tokenClient struct {
	secret  string // empty: a public client
	refresh string // the one that is good
	used    map[string]bool
	revoked bool
	access  map[string]time.Time // until when each is good
	life    time.Duration

	exchanges, calls int

	// answering is called when the tokens are rotated and nothing is answered yet.
	answering func(w http.ResponseWriter, r *http.Request) (answered bool)
}

func startTokenServer(t testing.TB) *tokenServer {
	s := &tokenServer{clients: map[string]*tokenClient{}}
	s.endpoint = httptest.NewServer(http.HandlerFunc(s.exchange))
	s.api = httptest.NewServer(http.HandlerFunc(s.call))
	for _, server := range []*httptest.Server{s.endpoint, s.api} {
		t.Cleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
	}
	return s
}

func (s *tokenServer) fresh(what string) string {
	token := what + "-" + rand.Text()
	s.issued = append(s.issued, token)
	return token
}

// client adds a client and returns it.
func (s *tokenServer) client(name string, confidential bool) *tokenClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &tokenClient{used: map[string]bool{}, access: map[string]time.Time{}, life: time.Hour}
	c.refresh = s.fresh("refresh")
	if confidential {
		c.secret = s.fresh("secret/+ ") // must be escaped before it is encoded
	}
	s.clients[name] = c
	return c
}

// sign in again: a new family.
func (s *tokenServer) signIn(c *tokenClient) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.refresh, c.revoked, c.used = s.fresh("refresh"), false, map[string]bool{}
	return c.refresh
}

func (s *tokenServer) with(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

func (s *tokenServer) counts(c *tokenClient) (exchanges, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.exchanges, c.calls
}

func (s *tokenServer) exchange(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	id, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	s.mu.Lock()
	c := s.clients[id]
	if c == nil || c.secret != secret {
		s.mu.Unlock()
		refuse(w, r, 401, "invalid_client", secret)
		return
	}
	c.exchanges++
	out := map[string]any{"token_type": "Bearer", "expires_in": c.life.Seconds()}
	switch sent := r.PostForm.Get("refresh_token"); r.PostForm.Get("grant_type") {
	case "client_credentials":
	case "refresh_token":
		if c.used[sent] {
			c.revoked = true
		}
		if c.revoked || sent != c.refresh {
			answering := c.answering
			s.mu.Unlock()
			if answering != nil {
				answering(w, r)
			}
			refuse(w, r, 400, "invalid_grant", sent)
			return
		}
		c.used[sent] = true
		c.refresh = s.fresh("refresh")
		out["refresh_token"] = c.refresh
	default:
		s.mu.Unlock()
		refuse(w, r, 400, "unsupported_grant_type", "")
		return
	}
	access := s.fresh("access")
	c.access[access] = time.Now().Add(c.life + Patience) // a call may be slow to arrive
	out["access_token"] = access
	answering := c.answering
	s.mu.Unlock()
	if answering != nil && answering(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(out)
}

// refuse repeats what was sent, as real servers have been seen to do.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, sent string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("WWW-Authenticate", r.Header.Get("Authorization"))
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": sent + " " + r.PostForm.Encode()})
}

// call answers below /CLIENT/ to that client's access tokens, and repeats them.
func (s *tokenServer) call(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	c := s.clients[name]
	if c == nil {
		w.WriteHeader(404)
		return
	}
	c.calls++
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if until, ok := c.access[token]; !ok || time.Now().After(until) {
		w.WriteHeader(401)
	}
	fmt.Fprintf(w, "you are %s, by %q", name, token)
}

// accessOf is the access file for the clients.
func (s *tokenServer) accessOf(kinds map[string]string) string {
	var b strings.Builder
	for name, kind := range kinds {
		fmt.Fprintf(&b, "\n[credential.%s]\nkind = %q\norigin = %q\ntoken_endpoint = \"%s/token\"\nclient_id = %q\n", name, strings.TrimSuffix(kind, " public"), s.api.URL, s.endpoint.URL, name)
		switch kind {
		case "oauth2-refresh":
			fmt.Fprintf(&b, "client_secret = \"%s-client\"\n\n[credential.%s-client]\nkind = \"client-secret\"\n", name, name)
		case "oauth2-client":
			b.WriteString("auth = \"post\"\nscopes = [\"read\", \"write\"]\n")
		}
		fmt.Fprintf(&b, "\n[capability.\"http:%s\"]\ncredential = %q\nmethods = [\"GET\", \"POST\"]\npaths = [\"/%s/**\"]\n", name, name, name)
	}
	return b.String()
}
