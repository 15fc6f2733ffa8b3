package httpexec

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

const secret = "tok-Zx9/Qm+41%aB7&kP\"w_e3"

var (
	bearer = Credential{Kind: "bearer", Secret: []byte(secret)}
	get    = action.HTTP{Method: "GET", Path: "/v1/invoices"}
)

// rawServer is an upstream at the level of bytes. serve answers one request:
// it gets the request, whose raw head is head, and returns whether the
// connection goes on.
type rawServer struct {
	net.Listener
	serve func(c net.Conn, n int, head string, r *http.Request) bool

	mu       sync.Mutex
	requests []string // raw heads, in order of arrival
	accepted []net.Conn
	conns    sync.WaitGroup
}

func newRawServer(t testing.TB, serve func(c net.Conn, n int, head string, r *http.Request) bool) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{Listener: l, serve: serve}
	s.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.accepted = append(s.accepted, c)
			s.mu.Unlock()
			s.conns.Go(func() { s.connection(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.accepted {
			c.Close()
		}
		s.mu.Unlock()
		s.conns.Wait()
	})
	return s
}

func (s *rawServer) connection(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	var seen recorder
	br := bufio.NewReader(io.TeeReader(c, &seen))
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		head := seen.head()
		s.mu.Lock()
		s.requests = append(s.requests, head)
		n := len(s.requests)
		s.mu.Unlock()
		if !s.serve(c, n, head, r) {
			return
		}
		io.Copy(io.Discard, r.Body)
		seen.forget(br.Buffered())
	}
}

// recorder keeps the bytes of one request.
type recorder struct{ b []byte }

func (r *recorder) Write(p []byte) (int, error) {
	r.b = append(r.b, p...)
	return len(p), nil
}

func (r *recorder) head() string {
	head, _, _ := strings.Cut(string(r.b), "\r\n\r\n")
	return head
}

func (r *recorder) forget(keep int) { r.b = r.b[len(r.b)-keep:] }

func (s *rawServer) port() int { return s.Addr().(*net.TCPAddr).Port }

func (s *rawServer) heads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

func (s *rawServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.accepted)
}

// target is plain http to the server, allowed because it is loopback.
func (s *rawServer) target() Target {
	return Target{Scheme: "http", Host: "127.0.0.1", Port: s.port(), Private: true, Timeout: 10 * time.Second}
}

// answers returns a serve function that sends the same bytes every time.
func answers(raw string) func(net.Conn, int, string, *http.Request) bool {
	return func(c net.Conn, _ int, _ string, _ *http.Request) bool {
		io.WriteString(c, raw)
		return true
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func newExecutor(t testing.TB, change ...func(*Options)) *Executor {
	t.Helper()
	o := Options{OwnPorts: func() []int { return nil }}
	for _, f := range change {
		f(&o)
	}
	e := New(o)
	t.Cleanup(func() { e.Close() })
	return e
}

// resolving makes every name resolve to the addresses.
func resolving(addrs ...string) func(*Options) {
	return func(o *Options) {
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			var out []netip.Addr
			for _, a := range addrs {
				out = append(out, netip.MustParseAddr(a))
			}
			return out, nil
		}
	}
}

func do(t testing.TB, e *Executor, target Target, r action.HTTP) *Result {
	t.Helper()
	res, err := e.Do(context.Background(), target, bearer, r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.Path, err)
	}
	return res
}

// refused runs an action that must fail and returns its error.
func refused(t testing.TB, e *Executor, target Target, c Credential, r action.HTTP) *Error {
	t.Helper()
	res, err := e.Do(context.Background(), target, c, r)
	var typed *Error
	if !errors.As(err, &typed) {
		t.Fatalf("Do = %+v, %v; want an *Error", res, err)
	}
	return typed
}

func header(res *Result, name string) []string {
	var out []string
	for _, h := range res.Headers {
		if h.Name == name {
			out = append(out, h.Value)
		}
	}
	return out
}

// quietLog takes what httptest says of handshakes that are meant to fail.
var quietLog = log.New(io.Discard, "", 0)
