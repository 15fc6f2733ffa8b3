package httpexec

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/dialrule"
)

func TestH01_RedirectIsAnAnswer(t *testing.T) {
	other := newRawServer(t, answers(ok))
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			location := fmt.Sprintf("http://127.0.0.1:%d/steal?key=", other.port())
			first := newRawServer(t, answers(fmt.Sprintf(
				"HTTP/1.1 %d Moved\r\nLocation: %s%s\r\nContent-Length: 0\r\n\r\n", status, location, secret)))
			e := newExecutor(t)
			for _, r := range []action.HTTP{
				get,
				{Method: "POST", Path: "/v1/pay", Headers: []action.Header{{Name: "X-Api-Key", Value: "agent's own"}}, Body: []byte("amount=1")},
			} {
				res := do(t, e, first.target(), r)
				if res.Status != status {
					t.Errorf("%s: status %d, want the redirect itself", r.Method, res.Status)
				}
				if got := header(res, "Location"); !slices.Equal(got, []string{location + mark}) {
					t.Errorf("%s: Location %q", r.Method, got)
				}
			}
			if n := len(first.heads()); n != 2 {
				t.Errorf("%d requests for 2 actions", n)
			}
		})
	}
	if n := other.connections(); n != 0 {
		t.Errorf("the other host was connected to %d times", n)
	}
}

func TestH04_HostCheckedIsHostDialled(t *testing.T) {
	s := newRawServer(t, answers(ok))
	asked := 0
	e := newExecutor(t, func(o *Options) {
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			asked++
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	})
	target := s.target()
	for _, host := range []string{
		"", "api.example.com:x@127.0.0.1", "api.example.com%2f@127.0.0.1", "api.example.com@127.0.0.1",
		"api.example.com\\127.0.0.1", "api.example.com\x00.127.0.0.1", "api.example.com%00", "api.example.com/",
		"api.example.com:81", "api.example.com\r\nX: y", "api.example.com ", "Api.Example.Com", "аpi.example.com",
		"api..example.com", ".example.com", "[api.example.com]", "*.example.com", "api.example.com#", "api.example.com?",
		strings.Repeat("a", 64) + ".example.com", "[::1", "::1]",
	} {
		target.Host = host
		if err := refused(t, e, target, bearer, get); err.Code != CodeTargetBlocked || err.MaybeSent {
			t.Errorf("host %q: %+v", host, err)
		}
	}
	target.Host = "api.example.com"
	for _, r := range []action.HTTP{
		{Method: "GET", Path: "http://127.0.0.1/"},
		{Method: "GET", Path: "/a b"}, {Method: "GET", Path: "/a\r\nHost: evil"}, {Method: "GET", Path: "/a\\b"},
		{Method: "GET", Path: "/a?b"}, {Method: "GET", Path: "/a#b"}, {Method: "GET", Path: ""}, {Method: "GET", Path: "/ä"},
		{Method: "GET", Path: "/", Query: "a=b c"}, {Method: "GET", Path: "/", Query: "a\r\nb"}, {Method: "GET", Path: "/", Query: "a#b"},
		{Method: "CONNECT", Path: "/"}, {Method: "TRACE", Path: "/"}, {Method: "GET /x HTTP/1.1\r\nX:", Path: "/"}, {Method: "", Path: "/"},
	} {
		if err := refused(t, e, target, bearer, r); err.Code != CodeOutside || err.MaybeSent {
			t.Errorf("%q %q %q: %+v", r.Method, r.Path, r.Query, err)
		}
	}
	for _, h := range []action.Header{
		{Name: "Host", Value: "evil.test"}, {Name: "host", Value: "evil.test"}, {Name: ":authority", Value: "evil.test"},
		{Name: "Connection", Value: "X"}, {Name: "Transfer-Encoding", Value: "chunked"}, {Name: "Transfer_Encoding", Value: "chunked"},
		{Name: "Content-Length", Value: "0"}, {Name: "Content_length", Value: "0"}, {Name: "Authorization", Value: "x"},
		{Name: "aUTHORIZATION", Value: "x"}, {Name: "Proxy-Authorization", Value: "x"}, {Name: "Range", Value: "bytes=0-1"},
		{Name: "Expect", Value: "100-continue"}, {Name: "Upgrade", Value: "h2c"}, {Name: "Te", Value: "trailers"},
		{Name: "X-Http-Method-Override", Value: "DELETE"}, {Name: "X-Original-Url", Value: "/admin"},
		{Name: "X_Requested_Method", Value: "DELETE"}, {Name: "Destination", Value: "/admin"}, {Name: "x.accel.redirect", Value: "/admin"},
		{Name: "X_Sendfile", Value: "/admin"}, {Name: "X-Envoy-Original-Path", Value: "/admin"},
		{Name: "X-Envoy-Retry-On", Value: "5xx"}, {Name: "Request-Range", Value: "bytes=0-1"}, {Name: "x_ms_range", Value: "bytes=0-1"},
		{Name: "X-Amz-Copy-Source", Value: "/other/key"}, {Name: "x_amz_copy_source_range", Value: "bytes=0-1"},
		{Name: "X-Goog-Copy-Source", Value: "/other/key"}, {Name: "X-Ms-Copy-Source", Value: "https://evil.test/"},
		{Name: "X", Value: "a\r\nHost: evil.test"}, {Name: "X", Value: "a\x00"}, {Name: "X Y", Value: "a"}, {Name: "", Value: "a"},
		{Name: "X:", Value: "a"}, {Name: "Host ", Value: "a"},
	} {
		r := get
		r.Headers = []action.Header{h}
		if err := refused(t, e, target, bearer, r); err.Code != CodeOutside || err.MaybeSent {
			t.Errorf("header %q: %+v", h, err)
		}
	}
	if asked != 0 || s.connections() != 0 {
		t.Fatalf("%d look-ups, %d connections for refused actions", asked, s.connections())
	}

	do(t, e, target, action.HTTP{Method: "GET", Path: "//evil.test/%2e/a", Query: "u=http://evil.test/"})
	want := fmt.Sprintf("GET //evil.test/%%2e/a?u=http://evil.test/ HTTP/1.1\r\nHost: api.example.com:%d\r\n", s.port())
	if heads := s.heads(); len(heads) != 1 || !strings.HasPrefix(heads[0], want) || strings.Count(heads[0], "Host:") != 1 {
		t.Errorf("on the wire: %q", heads)
	}
}

func TestRequestIsSentByteForByte(t *testing.T) {
	s := newRawServer(t, answers(ok))
	e := newExecutor(t)
	do(t, e, s.target(), action.HTTP{
		Method: "PATCH", Path: "/v1/%7Euser;v=1/a+b/%C3%A4", Query: "a=%2f&a=+&b",
		Headers: []action.Header{{Name: "X-Version", Value: "1"}, {Name: "If-Match", Value: `"x"`}, {Name: "Accept-Encoding", Value: "br"}},
		Body:    []byte("{}"),
	})
	want := "PATCH /v1/%7Euser;v=1/a+b/%C3%A4?a=%2f&a=+&b HTTP/1.1\r\n" +
		fmt.Sprintf("Host: 127.0.0.1:%d\r\n", s.port()) +
		"X-Version: 1\r\nIf-Match: \"x\"\r\nUser-Agent: yett\r\nAccept-Encoding: gzip\r\n" +
		"Authorization: Bearer " + secret + "\r\nContent-Length: 2\r\nConnection: close"
	if heads := s.heads(); len(heads) != 1 || heads[0] != want {
		t.Errorf("on the wire:\n%q\nwant\n%q", heads, want)
	}
}

func TestH06_OddAddressSpellings(t *testing.T) {
	s := newRawServer(t, answers(ok))
	var asked []string
	// A resolver of the kind that reads numbers as inet_aton does.
	e := newExecutor(t, func(o *Options) {
		o.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
			asked = append(asked, host)
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	})
	for _, host := range []string{
		"2852039166", "0xa9fea9fe", "0xA9FEA9FE", "0251.0376.0251.0376", "127.1", "127.0.1", "127.0.0.1.", "0x7f.1", "0x7f.0x1",
		"0177.1", "1", "0", "0.0", "0x", "127.0.0.01", "256.256.256.256", "1.2.3.4.5", "a.1", "a.0x1f",
		"169.254.169.254", "::ffff:169.254.169.254", "[::ffff:a9fe:a9fe]", "64:ff9b::169.254.169.254", "64:ff9b::a9fe:a9fe",
		"64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "::127.0.0.1", "::1.1.1.1", "2001:0:a9fe:a9fe::1",
		"fe80::1", "fe80::1%lo", "::1%lo", "fe80::1%25lo", "0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "ff02::1", "224.0.0.1",
		"255.255.255.255", "240.0.0.1", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "169.254.1.1",
	} {
		target := s.target() // with Private: these are refused even so
		target.Host, target.Insecure = host, true
		if err := refused(t, e, target, bearer, get); err.Code != CodeTargetBlocked || err.MaybeSent {
			t.Errorf("host %q: %+v", host, err)
		}
	}
	for _, host := range []string{
		"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::",
		"10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "fec0::1", "198.18.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1",
	} {
		target := s.target()
		target.Host, target.Insecure, target.Private = host, true, false
		if err := refused(t, e, target, bearer, get); err.Code != CodeTargetBlocked || err.MaybeSent {
			t.Errorf("host %q without Private: %+v", host, err)
		}
	}
	if len(asked) != 0 || s.connections() != 0 {
		t.Errorf("looked up %q, %d connections", asked, s.connections())
	}
}

func TestH07_RebindingResolver(t *testing.T) {
	s := newRawServer(t, answers(ok))
	t.Run("one look-up per connection", func(t *testing.T) {
		asked := 0
		e := newExecutor(t, func(o *Options) {
			o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
				asked++
				if asked == 1 {
					return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
				}
				return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
			}
		})
		target := s.target()
		target.Host = "api.example.com"
		do(t, e, target, get)
		do(t, e, target, get) // over the connection that was checked
		if asked != 1 {
			t.Errorf("%d look-ups", asked)
		}
		target.Session = "another"
		if err := refused(t, e, target, bearer, get); err.Code != CodeTargetBlocked {
			t.Errorf("second look-up: %+v", err)
		}
	})
	before := s.connections()
	for name, addrs := range map[string][]string{
		"private":             {"127.0.0.1"},
		"mixed, public first": {"93.184.216.34", "127.0.0.1"},
		"mixed, mapped":       {"93.184.216.34", "::ffff:127.0.0.1"},
		"zone":                {"fe80::1%lo"},
		"metadata":            {"169.254.169.254"},
	} {
		t.Run(name, func(t *testing.T) {
			target := s.target()
			target.Host, target.Private, target.Insecure = "api.example.com", false, true
			target.Timeout = time.Second
			if err := refused(t, newExecutor(t, resolving(addrs...)), target, bearer, get); err.Code != CodeTargetBlocked || err.MaybeSent {
				t.Errorf("%+v", err)
			}
		})
	}
	t.Run("mixed, allowed first", func(t *testing.T) {
		target := s.target()
		target.Host = "api.example.com"
		if err := refused(t, newExecutor(t, resolving("127.0.0.1", "169.254.169.254")), target, bearer, get); err.Code != CodeTargetBlocked || err.MaybeSent {
			t.Errorf("%+v", err)
		}
	})
	t.Run("the socket's own check", func(t *testing.T) {
		rule := dialrule.Rule{OwnPorts: func() []int { return nil }}
		c, err := dial(t.Context(), rule, []netip.AddrPort{netip.MustParseAddrPort(s.Addr().String())})
		if err == nil || err.(*Error).Code != CodeTargetBlocked {
			t.Errorf("dial = %v, %v", c, err)
		}
	})
	if n := s.connections(); n != before {
		t.Errorf("%d connections to a refused address", n-before)
	}
	t.Run("kept connections belong to name, credential and session", func(t *testing.T) {
		s := newRawServer(t, answers(ok))
		e := newExecutor(t, resolving("127.0.0.1"))
		target := s.target()
		connections := 0
		for _, step := range []struct {
			host, session, secret string
			fresh                 bool
		}{
			{"a.example", "1", secret, true},
			{"a.example", "1", secret, false},
			{"b.example", "1", secret, true},
			{"a.example", "2", secret, true},
			{"a.example", "1", "another secret", true},
			{"a.example", "1", secret, false},
		} {
			target.Host, target.Session = step.host, step.session
			if _, err := e.Do(t.Context(), target, Credential{Kind: "bearer", Secret: []byte(step.secret)}, get); err != nil {
				t.Fatal(err)
			}
			if step.fresh {
				connections++
			}
			if got := s.connections(); got != connections {
				t.Errorf("%+v: %d connections, want %d", step, got, connections)
			}
		}
	})
}

func TestOwnPortsAreNeverDialled(t *testing.T) {
	s := newRawServer(t, answers(ok))
	var own atomic.Int64
	e := newExecutor(t, resolving("127.0.0.1"), func(o *Options) {
		o.OwnPorts = func() []int { return []int{int(own.Load())} }
	})
	target := s.target()
	do(t, e, target, action.HTTP{Method: "POST", Path: "/"})
	own.Store(int64(s.port()))
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "localhost", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"} {
		target.Host, target.Insecure = host, true
		if err := refused(t, e, target, bearer, action.HTTP{Method: "POST", Path: "/"}); err.Code != CodeTargetBlocked {
			t.Errorf("%s: %+v", host, err)
		}
	}
	if n := len(s.heads()); n != 1 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestOwnPortsAreRequired(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New without OwnPorts did not panic")
		}
	}()
	New(Options{})
}

func TestH13_NoCredentialOverPlainHTTP(t *testing.T) {
	s := newRawServer(t, answers(ok))
	target := s.target()
	for _, addr := range []string{"10.1.2.3", "1.1.1.1", "fd12::1", "64:ff9b::127.0.0.1"} {
		target.Host = "api.example.com"
		if err := refused(t, newExecutor(t, resolving(addr)), target, bearer, get); err.Code != CodeTargetBlocked || err.MaybeSent {
			t.Errorf("http to %s: %+v", addr, err)
		}
	}
	for _, scheme := range []string{"", "HTTP", "ftp", "ws", "file"} {
		target := s.target()
		target.Scheme = scheme
		if err := refused(t, newExecutor(t), target, bearer, get); err.Code != CodeTargetBlocked {
			t.Errorf("scheme %q: %+v", scheme, err)
		}
	}
	t.Run("https is never taken down to http", func(t *testing.T) {
		got := make(chan []byte, 1)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n")
			c.SetDeadline(time.Now().Add(10 * time.Second))
			b, _ := io.ReadAll(c)
			got <- b
		}()
		target := Target{Scheme: "https", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Private: true, Insecure: true}
		if err := refused(t, newExecutor(t), target, bearer, get); err.Code != CodeUpstream || err.MaybeSent {
			t.Errorf("%+v", err)
		}
		if b := <-got; strings.Contains(string(b), "tok-") || strings.Contains(string(b), "Bearer") || len(b) > 0 && b[0] != 0x16 {
			t.Errorf("sent in clear: %q", b)
		}
	})
}
