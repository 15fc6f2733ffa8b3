package httpexec

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

func TestH09_CredentialHeadersAreDropped(t *testing.T) {
	s := newRawServer(t, answers("HTTP/1.1 401 No\r\n"+
		"set-cookie: session=s3ss10n\r\nSet-Cookie2: s3ss10n\r\nWWW-Authenticate: Digest nonce=\"s3ss10n\"\r\n"+
		"Proxy-Authenticate: s3ss10n\r\nAuthentication-Info: nextnonce=s3ss10n\r\nProxy-Authentication-Info: s3ss10n\r\n"+
		"Authorization: Bearer s3ss10n\r\nProxy-Authorization: s3ss10n\r\nCookie: s3ss10n\r\nX-Subject-Token: s3ss10n\r\n"+
		"X-Auth-Token: s3ss10n\r\nx_auth_token: s3ss10n\r\nSET_COOKIE: s3ss10n\r\nAccess-Token: s3ss10n\r\nX-Session-Token: s3ss10n\r\n"+
		"X-AuthToken: s3ss10n\r\nX-JWT: s3ss10n\r\nX-Next-Page-Token: p\r\nConnection: X-Hop, keep-alive\r\nX-Hop: s3ss10n\r\nKeep-Alive: timeout=5\r\n"+
		"Upgrade: h2c\r\nProxy-Connection: keep-alive\r\nTrailer: X-T\r\n"+
		"X-Request-Id: b\r\nx-request-id: a\r\nETag: \"e\"\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"))
	e := newExecutor(t)
	res := do(t, e, s.target(), get)
	want := []action.Header{{Name: "Content-Type", Value: "text/plain"}, {Name: "Etag", Value: `"e"`},
		{Name: "X-Next-Page-Token", Value: "p"}, {Name: "X-Request-Id", Value: "b"}, {Name: "X-Request-Id", Value: "a"}}
	if res.Status != 401 || !slices.Equal(res.Headers, want) || string(res.Body) != "no" {
		t.Errorf("%+v", res)
	}
	do(t, e, s.target(), get)
	for _, head := range s.heads() { // no cookie jar
		if strings.Contains(head, "s3ss10n") {
			t.Errorf("sent back: %q", head)
		}
	}
}

func TestAnswersWithoutBody(t *testing.T) {
	for _, c := range []struct {
		method, raw string
		status      int
		body        string
	}{
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nContent-Encoding: br\r\n\r\n", 200, ""},
		{"GET", "HTTP/1.1 204 None\r\n\r\n", 204, ""},
		{"GET", "HTTP/1.1 304 Same\r\nContent-Length: 5000\r\nETag: x\r\n\r\n", 304, ""},
		{"GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + ok, 200, "ok"},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Encoding: gzip\r\n\r\n", 200, ""},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n0\r\n\r\n", 200, ""},
	} {
		s := newRawServer(t, answers(c.raw))
		e := newExecutor(t)
		for range 2 { // the second over the same connection: the first was read to its end
			res := do(t, e, s.target(), action.HTTP{Method: c.method, Path: "/"})
			if res.Status != c.status || string(res.Body) != c.body || res.Truncated || res.Withheld != "" {
				t.Errorf("%q: %+v", c.raw, res)
			}
		}
		if n := s.connections(); n != 1 {
			t.Errorf("%q: %d connections", c.raw, n)
		}
	}
	s := newRawServer(t, answers("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"))
	if got := header(do(t, newExecutor(t), s.target(), action.HTTP{Method: "HEAD", Path: "/"}), "Content-Length"); !slices.Equal(got, []string{"5000"}) {
		t.Errorf("Content-Length of HEAD: %q", got)
	}
}

func TestAnswersThatEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		raw, body string
		truncated bool
	}{
		"until the end":  {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", false},
		"HTTP/1.0":       {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false},
		"close":          {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "ok", false},
		"more than said": {ok + "more", "ok", false},
		"less than said": {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "ok", true},
		"half a chunk":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", "ok", true},
		"no last chunk":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "ok", true},
		"bad chunk":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", "ok", true},
	} {
		s := newRawServer(t, func(c2 net.Conn, _ int, _ string, _ *http.Request) bool {
			io.WriteString(c2, c.raw)
			return false
		})
		e := newExecutor(t)
		res := do(t, e, s.target(), get)
		if string(res.Body) != c.body || res.Truncated != c.truncated {
			t.Errorf("%s: %+v", name, res)
		}
		if e.pool.count != 0 {
			t.Errorf("%s: the connection was kept", name)
		}
	}
}

func TestAnswerBeforeTheWholeRequest(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
		io.WriteString(c, "HTTP/1.1 413 Too large\r\nContent-Length: 2\r\n\r\nno")
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, r.Body)
		return false
	})
	res := do(t, newExecutor(t), s.target(), action.HTTP{Method: "POST", Path: "/", Body: make([]byte, 32<<20)})
	if res.Status != 413 || string(res.Body) != "no" {
		t.Errorf("%+v", res)
	}
}

func TestLargeBodyArrivesWhole(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	got := make(chan []byte, 1)
	s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
		b, _ := io.ReadAll(r.Body)
		got <- b
		io.WriteString(c, ok)
		return true
	})
	do(t, newExecutor(t), s.target(), action.HTTP{Method: "PUT", Path: "/", Body: body})
	if !bytes.Equal(<-got, body) {
		t.Error("the body arrived changed")
	}
}

func TestH14_ErrorsNeverShowTheSecret(t *testing.T) {
	hit := newRawServer(t, answers(ok))
	e := newExecutor(t)
	for _, bad := range []string{"s3cr3t-tok\n", "s3cr3t-tok\r\n", " s3cr3t-tok", "s3cr3t-tok ", "\ufeffs3cr3t-tok", "\u00a0s3cr3t-tok",
		"s3cr3t\ntok", "-----BEGIN s3cr3t-----\r\ntok\r\n-----END-----", "s3cr3t\x00tok", "s3cr3t\x7ftok", "s3cr3t", ""} {
		err := refused(t, e, hit.target(), Credential{Kind: "bearer", Secret: []byte(bad)}, get)
		noSecret(t, err, "s3cr3t", "tok")
		if err.MaybeSent {
			t.Errorf("%q: %+v", bad, err)
		}
	}
	noSecret(t, refused(t, e, hit.target(), Credential{Kind: "basic-s3cr3t", Secret: []byte(secret)}, get), "s3cr3t", "tok-")
	if n := hit.connections(); n != 0 {
		t.Errorf("%d connections", n)
	}

	r := action.HTTP{Method: "GET", Path: "/p4th", Query: "q=qu3ry", Headers: []action.Header{{Name: "X-Private", Value: "h34der"}}}
	for _, raw := range []string{
		"", secret, secret + "\r\n\r\n", "HTTP/1.1 " + secret + "\r\n\r\n", "HTTP/" + secret + " 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: " + secret + "\r\n\r\n", "HTTP/1.1 200 OK\r\nX: " + secret,
		"HTTP/2.0 200 OK\r\n\r\n" + secret, "HTTP/1.1 101 " + secret + "\r\nUpgrade: " + secret + "\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1) + ok,
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat(secret, maxHead/len(secret)+1) + "\r\n\r\n",
		"HTTP/1.1 200 " + strings.Repeat(secret, maxHead/len(secret)+1),
		strings.Repeat("HTTP/1.1 100 Continue\r\nX: "+strings.Repeat("a", maxHead/8)+"\r\n\r\n", 9) + ok,
	} {
		s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
			io.WriteString(c, raw)
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
			return false
		})
		err := refused(t, newExecutor(t), s.target(), bearer, r)
		noSecret(t, err, "tok-", "Zx9", "qu3ry", "h34der", "p4th", "Bearer")
		if !err.MaybeSent || err.Code != CodeUpstream {
			t.Errorf("%.80q: %+v", raw, err)
		}
	}
	down := newRawServer(t, nil)
	down.Close()
	err := refused(t, e, down.target(), bearer, r)
	noSecret(t, err, "tok-", "qu3ry", "h34der", "p4th")
	if err.MaybeSent {
		t.Errorf("%+v", err)
	}
}

func noSecret(t *testing.T, err error, pieces ...string) {
	t.Helper()
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err)} {
		for _, piece := range pieces {
			if strings.Contains(text, piece) {
				t.Errorf("%q stands in %q", piece, text)
			}
		}
	}
}

func TestHeadIsBounded(t *testing.T) {
	wrote := make(chan int64, 1)
	s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
		n, _ := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		line := []byte("X-Filler: " + strings.Repeat("a", 4000) + "\r\n")
		total := int64(n)
		for range 16 << 10 { // 64 MiB, unless it is stopped
			n, err := c.Write(line)
			total += int64(n)
			if err != nil {
				break
			}
		}
		wrote <- total
		return false
	})
	err := refused(t, newExecutor(t), s.target(), bearer, get)
	if err.Error() != "upstream: the head of the answer is too long" || !err.MaybeSent {
		t.Errorf("%v", err)
	}
	if n := <-wrote; n > 32<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// bomb is n zero bytes in gzip.
func bomb(t *testing.T, n int64) []byte {
	t.Helper()
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for ; n > 0; n -= int64(len(zeros)) {
		w.Write(zeros)
	}
	w.Close()
	return z.Bytes()
}

func TestH18_DecompressionBombIsBounded(t *testing.T) {
	payload := bomb(t, 256<<20)
	s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
		switch r.URL.Path {
		case "/small":
			io.WriteString(c, ok)
			return true
		case "/chunked":
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", len(payload))
			c.Write(payload)
			io.WriteString(c, "\r\n0\r\n\r\n")
		case "/plain":
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for range 64 {
				if _, err := c.Write(make([]byte, 1<<20)); err != nil {
					break
				}
			}
		default:
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", len(payload))
			c.Write(payload)
		}
		return false
	})
	e := newExecutor(t)
	target := s.target()
	target.MaxBody = 1 << 20
	for _, path := range []string{"/length", "/chunked", "/plain"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res := do(t, e, target, action.HTTP{Method: "GET", Path: path, Headers: []action.Header{{Name: "Accept-Encoding", Value: "br, zstd"}}})
		runtime.ReadMemStats(&after)
		if int64(len(res.Body)) != target.MaxBody || !res.Truncated || res.Withheld != "" {
			t.Errorf("%s: %d bytes, truncated %v, withheld %q", path, len(res.Body), res.Truncated, res.Withheld)
		}
		// Both ends count, the server's megabyte writes too; nothing near the 256 MiB.
		if used := after.TotalAlloc - before.TotalAlloc; path != "/plain" && used > 16<<20 {
			t.Errorf("%s: allocated %d bytes", path, used)
		}
		do(t, e, target, action.HTTP{Method: "GET", Path: "/small"})
	}
	for _, head := range s.heads() {
		if !strings.Contains(head, "\r\nAccept-Encoding: gzip\r\n") || strings.Contains(head, "zstd") {
			t.Errorf("accepts more than it decodes: %q", head)
		}
	}
	exact := newRawServer(t, answers("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"))
	for limit, truncated := range map[int64]bool{9: true, 10: false, 11: false} {
		target := exact.target()
		target.MaxBody = limit
		if res := do(t, e, target, get); res.Truncated != truncated || int64(len(res.Body)) != min(limit, 10) {
			t.Errorf("cap %d: %+v", limit, res)
		}
	}
}

func TestTLS(t *testing.T) {
	var hits atomic.Int64
	serve := func(change func(*tls.Config)) (*httptest.Server, Target) {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hits.Add(1)
			fmt.Fprintf(w, "%s %s %s", r.Host, r.TLS.ServerName, r.Proto)
		}))
		s.EnableHTTP2 = true
		s.Config.ErrorLog = quietLog
		s.TLS = &tls.Config{}
		change(s.TLS)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, Target{Scheme: "https", Host: "example.com", Port: s.Listener.Addr().(*net.TCPAddr).Port, Private: true, Timeout: 10 * time.Second}
	}
	s, target := serve(func(*tls.Config) {})
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	trusting := func(o *Options) { o.Roots = roots }
	e := newExecutor(t, resolving("127.0.0.1"), trusting)
	for range 3 {
		res := do(t, e, target, get)
		if want := fmt.Sprintf("example.com:%d example.com HTTP/2.0", target.Port); string(res.Body) != want || res.Truncated {
			t.Errorf("%q, want %q", res.Body, want)
		}
	}
	if e.pool.count != 1 {
		t.Errorf("%d kept connections", e.pool.count)
	}
	do(t, e, target, action.HTTP{Method: "POST", Path: "/", Body: []byte("x")})
	good := hits.Load()

	check := func(name string, e *Executor, target Target, want string) {
		t.Helper()
		err := refused(t, e, target, bearer, get)
		if err.MaybeSent || err.Code != CodeUpstream || err.Error() != want {
			t.Errorf("%s: %+v: %v", name, err, err)
		}
	}
	check("unknown authority", newExecutor(t, resolving("127.0.0.1")), target,
		"upstream: TLS with example.com: the certificate is signed by an unknown authority")
	wrong := target
	wrong.Host = "other.test"
	check("another name", e, wrong, "upstream: TLS with other.test: the certificate is for another name")
	_, old := serve(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
	check("TLS 1.1", e, old, "upstream: TLS with example.com: the other side refused the TLS handshake")
	if n := hits.Load(); n != good {
		t.Errorf("%d requests went to a server that was refused", n-good)
	}
}

func FuzzAnswer(f *testing.F) {
	corpus := []string{
		ok, "", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntok\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 302 F\r\nLocation: /?" + secret + "\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"HTTP/1.0 200 OK\r\nSet-Cookie: a\r\n\r\n" + secret + secret[:9], "HTTP/1.1 204 N\r\nContent-Encoding: br\r\n\r\n",
	}
	if len(corpus) == 0 {
		f.Fatal("the corpus is empty")
	}
	for _, raw := range corpus {
		f.Add([]byte(raw), "GET", int64(100))
	}
	f.Fuzz(func(t *testing.T, raw []byte, method string, limit int64) {
		if limit < 1 || limit > 1<<16 {
			return
		}
		in := &limitedReader{r: bytes.NewReader(raw)}
		cn := &conn{in: in, br: bufio.NewReader(in), rw: unbound{}}
		resp, err := cn.awaitHead(Target{}, method)
		if err != nil {
			noSecret(t, err, secret)
			return
		}
		s := newScrubber([]byte(secret))
		res := &Result{Status: resp.StatusCode}
		cn.readBody(resp, Target{MaxBody: limit}, s, res)
		res.Headers = answerHeaders(resp, method == "HEAD", s, res)
		if bytes.Contains(res.Body, []byte(secret)) || strings.Contains(fmt.Sprint(res.Headers), secret) {
			t.Errorf("%q became %+v %q", raw, res.Headers, res.Body)
		}
		if int64(len(res.Body)) > limit*int64(len(mark)) || res.Status < 200 {
			t.Errorf("%d bytes of body, status %d", len(res.Body), res.Status)
		}
	})
}

// unbound is a connection without a deadline to set.
type unbound struct{ net.Conn }

func (unbound) SetReadDeadline(time.Time) error { return nil }
