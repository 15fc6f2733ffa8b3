package yetttest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Upstream is an HTTP server on loopback that counts what arrives.
type Upstream struct {
	URL string

	mu   sync.Mutex
	seen []string // "METHOD path"
	auth []string
}

// StartUpstream starts an upstream that wants a bearer token and answers with
// a small JSON document; it reflects nothing.
func StartUpstream(t testing.TB, token string) *Upstream {
	u := &Upstream{}
	return u.start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"path":%q}`, r.URL.Path)
	})
}

// StartUpstreamFunc starts an upstream with its own handler.
func StartUpstreamFunc(t testing.TB, h http.HandlerFunc) *Upstream {
	return (&Upstream{}).start(t, h)
}

func (u *Upstream) start(t testing.TB, h http.HandlerFunc) *Upstream {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.seen = append(u.seen, r.Method+" "+r.URL.RequestURI())
		u.auth = append(u.auth, r.Header.Get("Authorization"))
		u.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	u.URL = srv.URL
	return u
}

// Seen returns "METHOD target" of every request that arrived.
func (u *Upstream) Seen() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string{}, u.seen...)
}

// Authorizations returns the Authorization header of every request.
func (u *Upstream) Authorizations() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string{}, u.auth...)
}

// Access is an access file with the usual capabilities on the upstream.
func (u *Upstream) Access() string {
	return fmt.Sprintf(`
[credential.demo]
kind = "bearer"
origin = %q

[capability."http:demo.read"]
credential = "demo"
methods = ["GET", "HEAD"]
paths = ["/v1/**"]

[capability."http:demo.write"]
credential = "demo"
methods = ["POST", "PUT", "DELETE"]
paths = ["/v1/**"]

[capability."http:demo.each"]
credential = "demo"
methods = ["GET", "POST"]
paths = ["/each/**"]
confirm = "each"
`, u.URL)
}
