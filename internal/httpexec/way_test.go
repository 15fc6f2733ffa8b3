package httpexec

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

func pemOf(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

func pinOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// The authorities of a credential are the only ones for it, and a pin is asked
// for besides, on resumed connections too. What does not hold gets no byte of a
// request.
func TestAuthoritiesAndPins(t *testing.T) {
	var hits atomic.Int64
	resumed := make(chan bool, 16)
	s, target, _ := tlsServer(t, 2, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		resumed <- r.TLS.DidResume
	})
	other := strings.Repeat("A", 43) + "="
	none := func(o *Options) { o.Roots = x509.NewCertPool() }
	for name, c := range map[string]struct {
		options func(*Options)
		way     Way
		want    string
	}{
		"its own authority":           {none, Way{CA: pemOf(s.Certificate())}, ""},
		"its own authority and a pin": {none, Way{CA: pemOf(s.Certificate()), Pins: []string{other, pinOf(s.Certificate())}}, ""},
		"a pin":                       {trusting(s), Way{Pins: []string{pinOf(s.Certificate())}}, ""},
		"no authority":                {none, Way{Pins: []string{pinOf(s.Certificate())}}, "upstream: TLS with 127.0.0.1: the certificate is signed by an unknown authority"},
		"another key":                 {trusting(s), Way{Pins: []string{other}}, "upstream: TLS with 127.0.0.1: the server's key is not one that the access file pins"},
		"no PEM":                      {trusting(s), Way{CA: "x"}, "upstream: the authorities of the access file cannot be read"},
	} {
		hits.Store(0)
		e := newExecutor(t, c.options)
		target.Way = c.way
		if c.want != "" {
			if err := refused(t, e, target, bearer, get); err.MaybeSent || err.Error() != c.want || hits.Load() != 0 {
				t.Errorf("%s: %v, %d requests", name, err, hits.Load())
			}
			continue
		}
		for i := range 3 {
			do(t, e, target, action.HTTP{Method: "POST", Path: "/"})
			if again := <-resumed; again != (i > 0) {
				t.Errorf("%s: call %d resumed: %v", name, i, again)
			}
		}
		e.CloseSession("s")
		do(t, e, target, action.HTTP{Method: "POST", Path: "/"})
		if <-resumed {
			t.Errorf("%s: a session's end left its TLS sessions", name)
		}
		do(t, e, target, action.HTTP{Method: "POST", Path: "/"})
		if !<-resumed {
			t.Errorf("%s: not resumed", name)
		}
		elsewhere := target
		elsewhere.Session = "another"
		do(t, e, elsewhere, action.HTTP{Method: "POST", Path: "/"})
		if <-resumed {
			t.Errorf("%s: another session resumed", name)
		}
		do(t, e, target, get) // leaves a connection
		<-resumed
		unpinned := target
		unpinned.Way.Pins = []string{other}
		if err := refused(t, e, unpinned, bearer, get); err.MaybeSent {
			t.Errorf("%s: a connection of other pins was used: %v", name, err)
		}
	}
}

// connectProxy makes tunnels, and keeps what it is asked and what goes through.
type connectProxy struct {
	net.Listener
	mu    sync.Mutex
	asked []string
	seen  []byte
}

func newConnectProxy(t *testing.T, answer string) *connectProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &connectProxy{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c, answer)
		}
	}()
	return p
}

func (p *connectProxy) serve(c net.Conn, answer string) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.RequestURI)
	p.mu.Unlock()
	if answer != "" {
		io.WriteString(c, answer)
		io.Copy(io.Discard, c)
		return
	}
	_, port, _ := net.SplitHostPort(r.RequestURI)
	up, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return
	}
	defer up.Close()
	io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		io.Copy(up, io.TeeReader(br, p))
		up.Close()
	}()
	io.Copy(c, up)
}

func (p *connectProxy) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, b...)
	return len(b), nil
}

func (p *connectProxy) way() Way {
	return Way{Proxy: Proxy{Scheme: "http", Host: "proxy.test", Port: p.Addr().(*net.TCPAddr).Port}}
}

// A declared proxy makes the connection: it learns host and port, looks the name
// up itself, and sees nothing else.
func TestProxyOfTheCredential(t *testing.T) {
	s, target, _ := tlsServer(t, 2, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })
	p := newConnectProxy(t, "")
	target.Host, target.Way = "example.com", p.way()
	onlyProxy := func(o *Options) {
		o.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
			if host != "proxy.test" {
				return nil, fmt.Errorf("%s was looked up", host)
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}
	e := newExecutor(t, trusting(s), onlyProxy)
	want := fmt.Sprintf("example.com:%d", target.Port)
	for _, method := range []string{"GET", "GET", "POST"} {
		if res := do(t, e, target, action.HTTP{Method: method, Path: "/path"}); string(res.Body) != want {
			t.Errorf("%q", res.Body)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.asked, []string{"CONNECT " + want, "CONNECT " + want}) {
		t.Errorf("the proxy was asked %q", p.asked)
	}
	if len(p.seen) == 0 || strings.Contains(string(p.seen), secret) || strings.Contains(string(p.seen), "/path") {
		t.Error("the proxy saw the request, or nothing went through it")
	}
}

func TestProxiesThatRefuse(t *testing.T) {
	s, target, _ := tlsServer(t, 1, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	e := newExecutor(t, trusting(s), resolving("127.0.0.1"))
	target.Host, target.Timeout = "example.com", 700*time.Millisecond
	for answer, want := range map[string]string{
		"HTTP/1.1 407 " + secret + "\r\n\r\n":                           "the proxy: it wants a password, which is not supported",
		"HTTP/1.1 403 No\r\n\r\n":                                       "the proxy: it refused with status 403",
		"HTTP/1.1 302 No\r\nLocation: https://e.test\r\n\r\n":           "the proxy: it refused with status 302",
		"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01":                           "the proxy: it sent more than an answer",
		"SSH-2.0-x\r\n":                                                 "the proxy: its answer is not HTTP",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxTunnelHead): "the proxy: the other side closed the connection",
		"HTTP/1.1 200 OK\r\n":                                           "the proxy: the time limit passed",
	} {
		target.Way = newConnectProxy(t, answer).way()
		err := refused(t, e, target, bearer, action.HTTP{Method: "POST", Path: "/"})
		if err.MaybeSent || err.Cause.Error() != want {
			t.Errorf("%.20q: %v", answer, err)
		}
		noSecret(t, err, secret)
	}
	// What may not be reached may not be reached through a proxy either, as far as
	// its address is known here.
	p := newConnectProxy(t, "")
	for _, change := range []func(*Target){
		func(t *Target) { t.Host = "169.254.169.254" },
		func(t *Target) { t.Host = "::ffff:169.254.169.254" },
		func(t *Target) { t.Host, t.Private = "10.0.0.1", false },
		func(t *Target) { t.Scheme = "http" },
		func(t *Target) { t.Private = false }, // the proxy itself is at a private address
	} {
		blocked := target
		blocked.Way = p.way()
		change(&blocked)
		if err := refused(t, e, blocked, bearer, get); err.Code != CodeTargetBlocked {
			t.Errorf("%+v: %v", blocked, err)
		}
	}
	if len(p.asked) != 0 {
		t.Errorf("the proxy was asked %q", p.asked)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target.Way = Way{Proxy: Proxy{Scheme: "http", Host: "proxy.test", Port: l.Addr().(*net.TCPAddr).Port}}
	l.Close()
	if err := refused(t, e, target, bearer, get); err.MaybeSent || !strings.HasPrefix(err.Cause.Error(), "the proxy: dialling 127.0.0.1:") {
		t.Errorf("%v", err)
	}
}

func TestAddressesTakeTurns(t *testing.T) {
	parse := func(s string) (out []netip.AddrPort) {
		for _, a := range strings.Fields(s) {
			out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a), 443))
		}
		return out
	}
	for in, want := range map[string]string{
		"":                                     "",
		"192.0.2.1":                            "192.0.2.1",
		"2001:db8::1 2001:db8::2 192.0.2.1":    "2001:db8::1 192.0.2.1 2001:db8::2",
		"192.0.2.1 192.0.2.2 192.0.2.3 2001::": "192.0.2.1 2001:: 192.0.2.2 192.0.2.3",
	} {
		if got := alternate(parse(in)); !slices.Equal(got, parse(want)) {
			t.Errorf("%s: %v", in, got)
		}
	}
	if got := alternate(parse(strings.Repeat("192.0.2.1 ", 100))); len(got) != maxAddresses {
		t.Errorf("%d addresses", len(got))
	}
}

// An address that refuses is followed by the next at once; where none answers the
// last cause is told.
func TestTheNextAddressIsTried(t *testing.T) {
	s := newRawServer(t, answers(ok))
	e := newExecutor(t, resolving("127.0.0.3", "127.0.0.2", "127.0.0.1"))
	target := s.target()
	target.Host = "name.test"
	begin := time.Now()
	if res := do(t, e, target, get); string(res.Body) != "ok" || time.Since(begin) > 2*nextAddress {
		t.Errorf("%+v after %v", res, time.Since(begin))
	}
	if n := s.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	e = newExecutor(t, resolving("127.0.0.3", "127.0.0.2"))
	if err := refused(t, e, target, bearer, get); err.MaybeSent || !strings.Contains(err.Error(), "connection refused") || !errors.Is(err, err.Cause) {
		t.Errorf("%v", err)
	}
}
