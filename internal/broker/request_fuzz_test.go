package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/httpexec"
)

// requestSeeds are actions as an agent may write them: good ones, and spellings
// by which checks and servers were set against each other.
var requestSeeds = []struct{ method, path, query, value, header, text, body string }{
	{"GET", "/v1/x/items", "page", "2", "Accept", "application/json", ""},
	{"post", "/v1/x/items", "q", "a b&c=d", "X-Vendor-Version", "1", `{"a":[1,2.50]}`},
	{"PUT", "/v1/x/a:b@c!$&'()*+,;=", "", "", "If-Match", `"abc"`, "a=1&b=2"},
	{"GET", "/v1/x/../secret", "", "", "", "", ""},
	{"GET", "/v1/x/%2e%2e/secret", "", "", "", "", ""},
	{"GET", "/v1/x%2F..%2Fsecret", "", "", "", "", ""},
	{"GET", "/v1/x/..;/secret", "", "", "", "", ""},
	{"GET", "/v1/x/%252e%252e/secret", "", "", "", "", ""},
	{"GET", "/v1/x\\..\\secret", "", "", "", "", ""},
	{"GET", "//v1/x/a", "", "", "", "", ""},
	{"GET", "http://api.example@192.0.2.1/v1/x/a", "", "", "", "", ""},
	{"GET", "/v1/x/a?admin=1", "", "", "", "", ""},
	{"GET", "/v1/x/a#b", "", "", "", "", ""},
	{"GET", "/v1/x/a HTTP/1.1\r\nHost: evil", "", "", "", "", ""},
	{"GET", "/v1/x/\uff0e\uff0e/secret", "", "", "", "", ""},
	{"GET / HTTP/1.1\r\nX:", "/v1/x/a", "", "", "", "", ""},
	{"GET", "/v1/x/a", "api_key", "mine", "", "", ""},
	{"GET", "/v1/x/a", "_method", "DELETE", "", "", ""},
	{"GET", "/v1/x/a", "a\r\nX: y", "1", "", "", ""},
	{"GET", "/v1/x/a", "", "", "Host", "evil.example", ""},
	{"GET", "/v1/x/a", "", "", "X_HTTP_Method_Override", "DELETE", ""},
	{"GET", "/v1/x/a", "", "", "X-A", "b\r\nX-Injected: 1", ""},
	{"GET", "/v1/x/a", "", "", "Transfer-Encoding", "chunked", ""},
	{"POST", "/v1/x/a", "", "", "Content-Length", "0", "GET /v1/y HTTP/1.1\r\n\r\n"},
	{"DELETE", "/v1/x/%41%7e", "", "", "User-Agent", "agent/1", ""},
}

const requestAccess = `
[credential.api]
kind = "query"
parameter = "api_key"
origin = "http://127.0.0.1:%d"

[capability."http:api.x"]
credential = "api"
methods = ["GET", "POST", "PUT", "DELETE"]
paths = ["/v1/x/**"]
`

// FuzzRequest: what was matched is what is shown on a card is what a server at
// the level of bytes receives, once; and it is nothing that a server could take
// for another path.
func FuzzRequest(f *testing.F) {
	if len(requestSeeds) < 20 {
		f.Fatalf("only %d seeds", len(requestSeeds))
	}
	for _, s := range requestSeeds {
		f.Add(s.method, s.path, s.query, s.value, s.header, s.text, s.body, byte(len(s.body)))
	}
	u := newByteServer(f)
	policy, err := access.Parse(fmt.Appendf(nil, requestAccess, u.port()))
	if err != nil {
		f.Fatal(err)
	}
	cred, _ := policy.Credential("api")
	e := httpexec.New(httpexec.Options{OwnPorts: func() []int { return nil }})
	f.Cleanup(func() { e.Close() })
	f.Fuzz(func(t *testing.T, method, path, query, value, header, text, body string, form byte) {
		h, refusal := action.NewHTTP(input(method, path, query, value, header, text, body, form))
		if refusal != nil {
			return
		}
		r := action.Request{Capability: "http:api.x", HTTP: h}
		if !policy.Decide(func(string) bool { return true }, r).Allowed {
			return
		}
		card := approval.NewRequest("op", r)
		target := httpexec.Target{Scheme: "http", Host: "127.0.0.1", Port: u.port(), Private: true, Timeout: 5 * time.Second}
		if _, err := e.Do(context.Background(), target, sendable(cred, []byte("k3y/+ %secret")), *h); err != nil {
			t.Fatalf("what was allowed was not sent: %v", err)
		}
		got := u.taken(t)
		got.compare(t, card)
		again, refusal := action.NewHTTP(got.input(t))
		if refusal != nil || (action.Request{Capability: r.Capability, HTTP: again}).Digest() != r.Digest() {
			t.Errorf("what arrived reads as another action: %+v, %v; it was %+v", again, refusal, h)
		}
		if lenient := leniently(got.path); !strings.HasPrefix(lenient, "/v1/x/") {
			t.Errorf("%q was matched, and a server may serve %q", got.path, lenient)
		}
	})
}

// input is an action in one of the forms of a body.
func input(method, path, query, value, header, text, body string, form byte) action.HTTPInput {
	in := action.HTTPInput{Method: method, Path: path}
	if query != "" {
		in.Query = map[string][]string{query: {value}}
	}
	if header != "" {
		in.Headers = map[string]string{header: text}
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(body))
	switch form % 5 {
	case 0:
	case 1:
		in.Body = &body
	case 2:
		in.BodyBase64 = &encoded
	case 3:
		in.BodyJSON = []byte(body)
	case 4:
		in.Form = map[string][]string{"field": {body}}
	}
	return in
}

// leniently is a path as the most forgiving of servers read it.
func leniently(p string) string {
	for range 3 {
		if plain, err := url.PathUnescape(p); err == nil {
			p = plain
		}
	}
	p = strings.NewReplacer(`\`, "/", "\uff0e", ".", "\uff0f", "/", "\u2024", ".").Replace(p)
	segments := strings.Split(p, "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		segments[i] = strings.TrimSpace(s)
	}
	return path.Clean(strings.Join(segments, "/")) + "/"
}

// arrived is one request as bytes, taken apart by hand.
type arrived struct {
	method, path, query string
	headers             [][2]string
	body                []byte
}

// compare holds a request against its card. Beside what is shown there stand
// only what every request of the executor has, and the credential.
func (a *arrived) compare(t *testing.T, card *approval.Request) {
	t.Helper()
	query, own, _ := strings.Cut(a.query, "api_key=")
	if strings.TrimSuffix(query, "&") != card.Query || own != "k3y%2F%2B%20%25secret" || a.method != card.Method || a.path != card.Path {
		t.Errorf("%s %s?%s arrived; the card says %s %s?%s", a.method, a.path, a.query, card.Method, card.Path, card.Query)
	}
	if !bytes.Equal(a.body, []byte(card.Body)) {
		t.Errorf("the body %q arrived; the card says %q", a.body, card.Body)
	}
	shown := card.Headers
	for _, h := range a.headers {
		switch {
		case len(shown) > 0 && shown[0].Name == h[0] && shown[0].Value == h[1]:
			shown = shown[1:]
		case h[0] == "Host" || h[0] == "Content-Length" || h[0] == "Accept-Encoding" || h[0] == "Connection" && h[1] == "close" || h[0] == "User-Agent" && h[1] == "yett":
		default:
			t.Errorf("header %s: %q arrived, which the card does not show", h[0], h[1])
		}
	}
	if len(shown) > 0 {
		t.Errorf("the card shows %v, which did not arrive", shown)
	}
}

// input is what an agent would have to write for exactly this request.
func (a *arrived) input(t *testing.T) action.HTTPInput {
	in := action.HTTPInput{Method: a.method, Path: a.path, Query: map[string][]string{}, Headers: map[string]string{}}
	values, err := url.ParseQuery(a.query)
	if err != nil {
		t.Errorf("the query %q cannot be read: %v", a.query, err)
	}
	for name, v := range values {
		if name != "api_key" {
			in.Query[name] = v
		}
	}
	for _, h := range a.headers {
		switch h[0] {
		case "Host", "Content-Length", "Accept-Encoding", "Connection":
		case "User-Agent":
			if h[1] != "yett" {
				in.Headers[h[0]] = h[1]
			}
		default:
			in.Headers[h[0]] = h[1]
		}
	}
	if body := base64.StdEncoding.EncodeToString(a.body); body != "" {
		in.BodyBase64 = &body
	}
	return in
}

// byteServer hands on what arrives, one connection after the other.
type byteServer struct {
	net.Listener
	arrivals chan *arrived
}

func newByteServer(f *testing.F) *byteServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	s := &byteServer{l, make(chan *arrived, 16)}
	f.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *byteServer) port() int { return s.Addr().(*net.TCPAddr).Port }

func (s *byteServer) serve(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	for {
		a, err := readArrived(in)
		if err != nil {
			return
		}
		s.arrivals <- a
		io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	}
}

func readArrived(in *bufio.Reader) (*arrived, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	parts := strings.Split(strings.TrimSuffix(line, "\r\n"), " ")
	if len(parts) != 3 || parts[2] != "HTTP/1.1" {
		return &arrived{method: "not a request line: " + line}, nil
	}
	a := &arrived{method: parts[0]}
	a.path, a.query, _ = strings.Cut(parts[1], "?")
	size := 0
	for {
		if line, err = in.ReadString('\n'); err != nil {
			return nil, err
		}
		if line == "\r\n" {
			break
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), ": ")
		a.headers = append(a.headers, [2]string{name, value})
		if name == "Content-Length" {
			if size, err = strconv.Atoi(value); err != nil {
				return nil, err
			}
		}
	}
	a.body = make([]byte, size)
	_, err = io.ReadFull(in, a.body)
	return a, err
}

// taken is the one request that arrived.
func (s *byteServer) taken(t *testing.T) *arrived {
	t.Helper()
	select {
	case a := <-s.arrivals:
		select {
		case more := <-s.arrivals:
			t.Fatalf("a second request arrived: %+v", more)
		default:
		}
		return a
	case <-time.After(5 * time.Second):
		t.Fatal("nothing arrived")
	}
	return nil
}

// TestRequestSeeds: the seeds hold actions that are sent and actions that are
// not, so that neither side of the fuzz target is empty.
func TestRequestSeeds(t *testing.T) {
	policy, err := access.Parse(fmt.Appendf(nil, requestAccess, 80))
	if err != nil {
		t.Fatal(err)
	}
	sent := []int{}
	for i, s := range requestSeeds {
		h, refusal := action.NewHTTP(input(s.method, s.path, s.query, s.value, s.header, s.text, s.body, byte(len(s.body))))
		if refusal == nil && policy.Decide(func(string) bool { return true }, action.Request{Capability: "http:api.x", HTTP: h}).Allowed {
			sent = append(sent, i)
		}
	}
	if !slices.Equal(sent, []int{0, 1, 2, 24}) {
		t.Errorf("of the seeds %v are sent", sent)
	}
}
