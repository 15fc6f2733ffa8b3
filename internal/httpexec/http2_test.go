package httpexec

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/yett-broker/yett/internal/action"
)

// tlsServer is an upstream in TLS; version 2 speaks HTTP/2 if it is asked to.
func tlsServer(t testing.TB, version int, h http.HandlerFunc) (s *httptest.Server, target Target, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	s = httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = quietLog
	s.EnableHTTP2 = version == 2
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	return s, Target{Scheme: "https", Host: "127.0.0.1", Port: int(at.Port()), Private: true, Timeout: 10 * time.Second, Session: "s"}, connections
}

func trusting(s *httptest.Server) func(*Options) {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return func(o *Options) { o.Roots = pool }
}

// Both versions give the same, and which one it is is agreed in the handshake.
func TestHTTP2AndHTTP1AreAlike(t *testing.T) {
	var requests atomic.Int64
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // 8 MiB
	handler := func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength, len(body)))
		w.Header().Set("X-Seen", r.Method+" "+r.Host+" "+r.URL.RequestURI()+" "+r.Header.Get("User-Agent")+" own "+fmt.Sprint(len(r.Header.Get("X-Own"))))
		w.Header().Set("Set-Cookie", "c=1")
		switch r.URL.Path {
		case "/hints":
			w.Header().Set("Link", "</a>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "hinted")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/same":
			w.WriteHeader(http.StatusNotModified)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, "zipped "+r.Header.Get("Authorization"))
			z.Close()
		case "/trailer":
			w.Header().Set("Trailer", "X-Late")
			io.WriteString(w, "before")
			w.Header().Set("X-Late", r.Header.Get("Authorization"))
		case "/large":
			w.Write(large)
		case "/echo":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, r.Header)
		default:
			w.Write(body)
		}
	}
	var results [3][]string
	for version := 1; version <= 2; version++ {
		s, target, connections := tlsServer(t, version, handler)
		e := newExecutor(t, trusting(s))
		requests.Store(0)
		try := func(method, path string, body []byte, headers ...action.Header) {
			t.Helper()
			res := do(t, e, target, action.HTTP{Method: method, Path: path, Query: "a=1&b=%20", Headers: headers, Body: body})
			if want := fmt.Sprintf("HTTP/%d", version); !strings.HasPrefix(header(res, "X-Proto")[0], want) {
				t.Fatalf("%v, want %s", header(res, "X-Proto"), want)
			}
			if path == "/large" && method == "GET" && !bytes.Equal(res.Body, large) {
				t.Errorf("HTTP/%d: %d bytes", version, len(res.Body))
			}
			text := fmt.Sprintf("%d %s %v %v %v %d %v", res.Status, path, header(res, "X-Length"), header(res, "X-Seen"), header(res, "Content-Length"), res.Redacted, header(res, "X-Late"))
			if len(res.Body) < 1000 && path != "/echo" {
				text += " " + string(res.Body)
			}
			if strings.Contains(fmt.Sprint(res.Headers, string(res.Body[:min(len(res.Body), 5000)])), secret) || len(header(res, "Set-Cookie")) > 0 || res.Truncated {
				t.Errorf("HTTP/%d %s: %+v", version, path, res.Headers)
			}
			results[version] = append(results[version], strings.ReplaceAll(text, fmt.Sprint(target.Port), "PORT"))
		}
		for _, path := range []string{"/", "/hints", "/none", "/same", "/gzip", "/trailer", "/large", "/echo"} {
			try("GET", path, nil, action.Header{Name: "X-Own", Value: strings.Repeat("v", 30_000)})
		}
		try("HEAD", "/large", nil)
		if n := connections.Load(); n != 1 {
			t.Errorf("HTTP/%d: %d connections for safe methods, want 1", version, n)
		}
		for _, size := range []int{0, 10, bodyInOneCall, bodyInOneCall + 1, 70_000, 3 << 20} {
			try("POST", "/", bytes.Repeat([]byte("p"), size))
		}
		if n := connections.Load(); n != 7 {
			t.Errorf("HTTP/%d: %d connections, want one more for each POST", version, n)
		}
		if n := requests.Load(); n != 15 {
			t.Errorf("HTTP/%d: %d requests arrived for 15 actions", version, n)
		}
	}
	for i := range results[1] {
		if results[1][i] != results[2][i] {
			t.Errorf("HTTP/1.1: %s\nHTTP/2:   %s", results[1][i], results[2][i])
		}
	}
	s, target, _ := tlsServer(t, 2, handler)
	target.Way.HTTP1 = true
	if got := header(do(t, newExecutor(t, trusting(s)), target, get), "X-Proto")[0]; got != "HTTP/1.1" {
		t.Errorf("HTTP/2 was offered: %s", got)
	}
}

// An answer that comes before the request was read is an answer.
func TestHTTP2AnsweredEarly(t *testing.T) {
	s, target, _ := tlsServer(t, 2, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "no")
	})
	e := newExecutor(t, trusting(s))
	res := do(t, e, target, action.HTTP{Method: "POST", Path: "/", Body: make([]byte, 8<<20)})
	if res.Status != 403 || string(res.Body) != "no" {
		t.Errorf("%+v", res)
	}
}

// frames is a server at the level of frames: serve gets the first request.
func frames(t *testing.T, serve func(c net.Conn, fr *http2.Framer, id uint32)) (Target, func(*Options), *atomic.Int64) {
	t.Helper()
	ts := httptest.NewUnstartedServer(nil)
	ts.StartTLS()
	cert := ts.TLS.Certificates[0]
	pool := trusting(ts)
	ts.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	requests := new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(15 * time.Second))
				if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				fr := http2.NewFramer(c, c)
				for {
					f, err := fr.ReadFrame()
					if err != nil {
						return
					}
					if f.Header().Type == http2.FrameHeaders {
						requests.Add(1)
						serve(c, fr, f.Header().StreamID)
						return
					}
				}
			}()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	return Target{Scheme: "https", Host: "127.0.0.1", Port: port, Private: true, Timeout: 3 * time.Second}, pool, requests
}

func block(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func heads(fr *http2.Framer, id uint32, last bool, fields ...string) {
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields...), EndHeaders: true, EndStream: last})
}

// H11: whatever a server does instead of answering, one request arrives, and its
// outcome is unknown.
func TestH11_HTTP2OneRequestOnTheWire(t *testing.T) {
	for name, serve := range map[string]func(net.Conn, *http2.Framer, uint32){
		"closes":             func(c net.Conn, _ *http2.Framer, _ uint32) { c.Close() },
		"closes after hello": func(_ net.Conn, fr *http2.Framer, _ uint32) { fr.WriteSettings() },
		"refuses the stream": func(_ net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			fr.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			fr.ReadFrame()
		},
		"goes away": func(_ net.Conn, fr *http2.Framer, _ uint32) {
			fr.WriteSettings()
			fr.WriteGoAway(0, http2.ErrCodeNo, nil)
			fr.ReadFrame()
		},
	} {
		for _, method := range []string{"GET", "POST"} {
			target, roots, requests := frames(t, serve)
			err := refused(t, newExecutor(t, roots), target, bearer, action.HTTP{Method: method, Path: "/", Headers: []action.Header{{Name: "Idempotency-Key", Value: "k"}}})
			if !err.MaybeSent || requests.Load() != 1 {
				t.Errorf("%s, %s: %v, %d requests arrived", name, method, err, requests.Load())
			}
			noSecret(t, err, secret)
		}
	}
}

// What breaks the protocol, or has no end, is ended: within its time and with
// words of our own.
func TestH18_HostileHTTP2(t *testing.T) {
	ok := []string{":status", "200", "content-type", "text/plain"}
	hostile := map[string]func(c net.Conn, fr *http2.Framer, id uint32){
		"no settings":    func(_ net.Conn, fr *http2.Framer, id uint32) { heads(fr, id, true, ok...) },
		"a body first":   func(_ net.Conn, fr *http2.Framer, id uint32) { fr.WriteSettings(); fr.WriteData(id, true, []byte("x")) },
		"another stream": func(_ net.Conn, fr *http2.Framer, id uint32) { fr.WriteSettings(); heads(fr, id+2, true, ok...) },
		"no status":      func(_ net.Conn, fr *http2.Framer, id uint32) { fr.WriteSettings(); heads(fr, id, true, "a", "b") },
		"status 101": func(_ net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			heads(fr, id, true, ":status", "101")
		},
		"status of letters": func(_ net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			heads(fr, id, true, ":status", secret)
		},
		"only hints": func(_ net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			for range 100 {
				heads(fr, id, false, ":status", "103")
			}
		},
		"a push": func(_ net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			fr.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: block(":method", "GET"), EndHeaders: true})
		},
		"a window beyond bounds": func(_ net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			fr.WriteWindowUpdate(0, 1<<31-1)
		},
		"a frame beyond bounds": func(c net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			c.Write(appendFrame(nil, http2.FrameData, 0, id, make([]byte, 1<<20)))
		},
		"endless headers": func(_ net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(":status", "200")})
			for range 10_000 {
				if fr.WriteContinuation(id, false, block("x-a", strings.Repeat("y", 10_000))) != nil {
					return
				}
			}
		},
		"pings without end": func(_ net.Conn, fr *http2.Framer, _ uint32) {
			fr.WriteSettings()
			for fr.WritePing(false, [8]byte{}) == nil {
			}
		},
		"silence": func(_ net.Conn, fr *http2.Framer, _ uint32) {
			fr.WriteSettings()
			fr.ReadFrame()
			fr.ReadFrame()
			fr.ReadFrame()
		},
	}
	for name, serve := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, roots, requests := frames(t, func(c net.Conn, fr *http2.Framer, id uint32) {
				serve(c, fr, id)
				io.Copy(io.Discard, c)
			})
			target.Timeout = 1500 * time.Millisecond
			begin := time.Now()
			err := refused(t, newExecutor(t, roots), target, bearer, get)
			if !err.MaybeSent || requests.Load() != 1 || time.Since(begin) > 3*time.Second {
				t.Errorf("%v after %v, %d requests", err, time.Since(begin), requests.Load())
			}
			noSecret(t, err, secret)
		})
	}
}

// A body that breaks off, or is not what was announced, is partial.
func TestHTTP2PartialBodies(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(c net.Conn, fr *http2.Framer, id uint32)
		want  string
	}{
		"reset": {func(_ net.Conn, fr *http2.Framer, id uint32) {
			heads(fr, id, false, ":status", "200")
			fr.WriteData(id, false, []byte("part"))
			fr.WriteRSTStream(id, http2.ErrCodeInternal)
		}, "part"},
		"closed": {func(c net.Conn, fr *http2.Framer, id uint32) {
			heads(fr, id, false, ":status", "200")
			fr.WriteData(id, false, []byte("part"))
			c.Close()
		}, "part"},
		"less than announced": {func(_ net.Conn, fr *http2.Framer, id uint32) {
			heads(fr, id, false, ":status", "200", "content-length", "10")
			fr.WriteData(id, true, []byte("part"))
		}, "part"},
		"more than announced": {func(_ net.Conn, fr *http2.Framer, id uint32) {
			heads(fr, id, false, ":status", "200", "content-length", "4")
			fr.WriteData(id, false, []byte("part"))
			fr.WriteData(id, true, []byte("more"))
		}, "part"},
		"an echo that is cut": {func(c net.Conn, fr *http2.Framer, id uint32) {
			heads(fr, id, false, ":status", "200")
			fr.WriteData(id, false, []byte("part"+secret[:12]))
			c.Close()
		}, "part" + mark},
	} {
		target, roots, _ := frames(t, func(conn net.Conn, fr *http2.Framer, id uint32) {
			fr.WriteSettings()
			c.serve(conn, fr, id)
			io.Copy(io.Discard, conn)
		})
		res, err := newExecutor(t, roots).Do(context.Background(), target, bearer, get)
		if err != nil || !res.Truncated || res.Partial != partialClosed || string(res.Body) != c.want {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

// A window that never opens ends with the call's time, not later.
func TestHTTP2WindowThatStaysShut(t *testing.T) {
	target, roots, _ := frames(t, func(c net.Conn, fr *http2.Framer, id uint32) {
		fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		io.Copy(io.Discard, c)
	})
	target.Timeout = time.Second
	e, ended := newExecutor(t, roots), make(chan error, 1)
	go func() {
		_, err := e.Do(context.Background(), target, bearer, action.HTTP{Method: "POST", Path: "/", Body: make([]byte, 1<<20)})
		ended <- err
	}()
	select {
	case err := <-ended:
		if e, ok := errors.AsType[*Error](err); !ok || !e.MaybeSent || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	case <-time.After(8 * time.Second):
		t.Fatal("the call does not end")
	}
}
