package httpexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// closer answers the first request and closes after reading any other, as a
// server does whose keep-alive ends just then.
func closer(c net.Conn, n int, _ string, _ *http.Request) bool {
	if n == 1 {
		io.WriteString(c, ok)
		return true
	}
	return false
}

func TestH11_OneRequestOnTheWire(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS"} {
		for _, key := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
			for _, body := range []string{"", "amount=1"} {
				t.Run(method+key+body, func(t *testing.T) {
					s := newRawServer(t, closer)
					e := newExecutor(t)
					do(t, e, s.target(), get) // leaves a warm connection
					r := action.HTTP{Method: method, Path: "/once", Body: []byte(body)}
					if key != "" {
						r.Headers = []action.Header{{Name: key, Value: "k-1"}}
					}
					if err := refused(t, e, s.target(), bearer, r); err.Code != CodeUpstream || !err.MaybeSent {
						t.Errorf("%+v", err)
					}
					if heads := s.heads(); len(heads) != 2 {
						t.Errorf("%d requests arrived for two actions: %q", len(heads), heads)
					}
					want := 1 // the warm connection
					if method != "GET" && method != "HEAD" && method != "OPTIONS" {
						want = 2
					}
					if n := s.connections(); n != want {
						t.Errorf("%d connections, want %d", n, want)
					}
				})
			}
		}
	}
}

func TestH11_UnsafeMethodsNeverShareAConnection(t *testing.T) {
	var mu sync.Mutex
	carried := map[net.Conn]string{} // the methods of each connection
	s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
		mu.Lock()
		carried[c] += r.Method + " "
		mu.Unlock()
		io.WriteString(c, ok)
		return true
	})
	e := newExecutor(t)
	for range 3 {
		do(t, e, s.target(), action.HTTP{Method: "POST", Path: "/"})
		do(t, e, s.target(), get)
	}
	mu.Lock()
	defer mu.Unlock()
	var got []string
	for _, methods := range carried {
		got = append(got, methods)
	}
	slices.Sort(got)
	if want := []string{"GET GET GET ", "POST ", "POST ", "POST "}; !slices.Equal(got, want) {
		t.Errorf("connections carried %q, want %q", got, want)
	}
	for _, head := range s.heads() {
		if strings.HasPrefix(head, "POST") != strings.Contains(head, "\r\nConnection: close") {
			t.Errorf("connection handling: %q", head)
		}
	}
}

// A kept connection that the server has closed meanwhile is noticed before
// anything is written to it.
func TestDeadKeptConnectionIsNotUsed(t *testing.T) {
	for name, last := range map[string]string{"closed": "", "bytes nobody asked for": "HTTP/1.1 408 Timeout\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			end := make(chan struct{})
			s := newRawServer(t, func(c net.Conn, n int, _ string, _ *http.Request) bool {
				io.WriteString(c, ok)
				if n > 1 {
					return true
				}
				<-end
				io.WriteString(c, last)
				return last != ""
			})
			e := newExecutor(t)
			do(t, e, s.target(), get)
			kept := onlyIdle(t, e)
			close(end)
			for quiet(kept.raw) { // until the end has arrived here
				time.Sleep(time.Millisecond)
			}
			do(t, e, s.target(), get)
			if requests, n := len(s.heads()), s.connections(); requests != 2 || n != 2 {
				t.Errorf("%d requests over %d connections", requests, n)
			}
		})
	}
}

func onlyIdle(t *testing.T, e *Executor) *conn {
	t.Helper()
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	if e.pool.count != 1 {
		t.Fatalf("%d kept connections", e.pool.count)
	}
	for _, list := range e.pool.idle {
		return list[0]
	}
	panic("count is wrong")
}

func TestKeptConnectionsEndWithTheirSession(t *testing.T) {
	gate := make(chan struct{})
	inside := make(chan struct{})
	s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
		if r.URL.Path == "/slow" {
			inside <- struct{}{}
			<-gate
		}
		io.WriteString(c, ok)
		return true
	})
	e := newExecutor(t)
	a, b := s.target(), s.target()
	a.Session, b.Session = "a", "b"
	do(t, e, a, get)
	do(t, e, b, get)
	e.CloseSession("a")
	if kept := onlyIdle(t, e); kept.key.session != "b" {
		t.Errorf("kept: session %q", kept.key.session)
	}
	done := make(chan error)
	go func() {
		_, err := e.Do(context.Background(), b, bearer, action.HTTP{Method: "GET", Path: "/slow"})
		done <- err
	}()
	<-inside
	e.CloseSession("b") // while its connection is in use
	close(gate)
	if err := <-done; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
	if e.pool.count != 0 || len(e.pool.busy) != 0 {
		t.Errorf("%d idle, %d busy", e.pool.count, len(e.pool.busy))
	}
	e.Close()
	do(t, e, a, get)
	if e.pool.count != 0 {
		t.Error("kept after Close")
	}
}

func TestPoolIsBounded(t *testing.T) {
	p := newPool()
	var conns []*conn
	s := newRawServer(t, answers(ok))
	for range maxIdlePerKey + 3 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := c.(*net.TCPConn).SyscallConn()
		cn := &conn{tcp: c.(*net.TCPConn), raw: raw, rw: c, born: time.Now()}
		p.adopt(cn)
		conns = append(conns, cn)
	}
	for _, c := range conns {
		p.give(c, true)
	}
	if p.count != maxIdlePerKey || len(p.busy) != 0 {
		t.Errorf("%d kept, %d busy", p.count, len(p.busy))
	}
	kept := p.idle[poolKey{}][0]
	p.expire(kept)
	p.expire(kept) // a timer that fires late does no harm
	if p.count != maxIdlePerKey-1 {
		t.Errorf("%d kept after one expired", p.count)
	}
	old := p.idle[poolKey{}][len(p.idle[poolKey{}])-1]
	old.born = time.Now().Add(-lifeTimeout)
	if got := p.take(poolKey{}, time.Now().Add(time.Minute)); got == nil || got == old {
		t.Error("a connection past its life was taken")
	} else {
		p.give(got, false)
	}
	p.close()
	if p.count != 0 {
		t.Errorf("%d kept after close", p.count)
	}
}

func TestNothingIsSentAfterCancel(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		s := newRawServer(t, answers(ok))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := newExecutor(t).Do(ctx, s.target(), bearer, get)
		wantCancelled(t, err, false)
		if s.connections() != 0 {
			t.Error("dialled")
		}
	})
	t.Run("on a kept connection", func(t *testing.T) {
		s := newRawServer(t, answers(ok))
		e := newExecutor(t)
		do(t, e, s.target(), get)
		kept := onlyIdle(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		scr := newScrubber([]byte(secret))
		target, err := s.target().normal()
		if err != nil {
			t.Fatal(err)
		}
		w, err := compose(target, bearer, get, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = kept.exchange(ctx, target, w, scr)
		wantCancelled(t, err, false)
		if n := len(s.heads()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("in the TLS handshake", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			c.Read(make([]byte, 1)) // the hello has come
			cancel()
			io.Copy(io.Discard, c)
		}()
		target := Target{Scheme: "https", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Private: true}
		_, err = newExecutor(t).Do(ctx, target, bearer, get)
		wantCancelled(t, err, false)
	})
	t.Run("in a large body", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		ended := make(chan error, 1)
		s := newRawServer(t, func(c net.Conn, _ int, _ string, r *http.Request) bool {
			io.ReadFull(r.Body, make([]byte, 64<<10))
			cancel()
			<-returned
			_, err := io.Copy(io.Discard, r.Body)
			ended <- err
			return false
		})
		body := make([]byte, 64<<20) // more than the kernel takes
		_, err := newExecutor(t).Do(ctx, s.target(), bearer, action.HTTP{Method: "POST", Path: "/", Body: body})
		close(returned)
		wantCancelled(t, err, true)
		// A reset, not an end: what the kernel held back was dropped, not sent.
		if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the upstream saw %v", err)
		}
	})
	t.Run("waiting for the answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		s := newRawServer(t, func(net.Conn, int, string, *http.Request) bool {
			cancel()
			<-returned
			return false
		})
		_, err := newExecutor(t).Do(ctx, s.target(), bearer, get)
		close(returned)
		wantCancelled(t, err, true)
	})
	t.Run("in the answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			cancel()
			<-returned
			return false
		})
		_, err := newExecutor(t).Do(ctx, s.target(), bearer, get)
		close(returned)
		wantCancelled(t, err, true)
	})
}

func wantCancelled(t *testing.T, err error, maybe bool) {
	t.Helper()
	var typed *Error
	if !errors.As(err, &typed) || typed.Code != CodeUpstream || typed.MaybeSent != maybe || !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want cancelled, MaybeSent %v", err, maybe)
	}
}

func TestDeadlines(t *testing.T) {
	const enough = 500 * time.Millisecond // for the request to arrive, on a busy machine too
	release := make(chan struct{})
	defer close(release)
	silent := func(first string) *rawServer {
		return newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
			io.WriteString(c, first)
			<-release
			return false
		})
	}
	target := silent("").target()
	target.Timeout = enough
	if err := refused(t, newExecutor(t), target, bearer, get); !err.MaybeSent || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %+v", err)
	}
	target = silent("HTTP/1.1 200 OK\r\nContent-Le").target()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	_, err := newExecutor(t).Do(ctx, target, bearer, get)
	var typed *Error
	if !errors.As(err, &typed) || !typed.MaybeSent || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("half a head: %v", err)
	}
	target = silent("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").target()
	target.Timeout = enough
	if res := do(t, newExecutor(t), target, get); !res.Truncated || string(res.Body) != "abc" {
		t.Errorf("half a body: %+v", res)
	}
	// The listener's queue accepts; nobody answers the handshake.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target = Target{Scheme: "https", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Private: true, Timeout: 50 * time.Millisecond}
	if err := refused(t, newExecutor(t), target, bearer, get); err.MaybeSent || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent TLS: %+v", err)
	}
	for _, bad := range []Target{{Timeout: -1}, {MaxBody: -1}, {Port: -1}, {Port: 65536}} {
		bad.Scheme, bad.Host = "https", "127.0.0.1"
		if err := refused(t, newExecutor(t), bad, bearer, get); err.Code != CodeTargetBlocked {
			t.Errorf("%+v: %+v", bad, err)
		}
	}
}

func TestDialTriesTheNextAddress(t *testing.T) {
	s := newRawServer(t, answers(ok))
	e := newExecutor(t, resolving("127.9.9.9", "127.0.0.1"))
	target := s.target()
	target.Host = "localhost"
	do(t, e, target, get)
	s.Close()
	err := refused(t, newExecutor(t, resolving("127.0.0.1")), target, bearer, get)
	if want := fmt.Sprintf("upstream: dialling 127.0.0.1:%d: connection refused", s.port()); err.Error() != want || err.MaybeSent {
		t.Errorf("%v, want %s", err, want)
	}
}
