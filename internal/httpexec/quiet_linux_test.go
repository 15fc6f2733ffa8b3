package httpexec

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// sipping is a listener whose connections have a small buffer and are read only
// when the test lets them be.
type sipping struct {
	net.Listener
	thirst chan struct{} // closed: everything is read
	read   atomic.Int64
}

func listenSipping(t *testing.T) *sipping {
	t.Helper()
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	l, err := small.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &sipping{Listener: l, thirst: make(chan struct{})}
}

func (s *sipping) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sippingConn{Conn: c, s: s}, nil
}

type sippingConn struct {
	net.Conn
	s *sipping
}

// Read lets the handshake and the head through, and no more before it is let.
func (c *sippingConn) Read(p []byte) (int, error) {
	if c.s.read.Load() > 16<<10 {
		<-c.s.thirst
	}
	n, err := c.Conn.Read(p)
	c.s.read.Add(int64(n))
	return n, err
}

func (s *sipping) serve(t *testing.T, version int, h http.HandlerFunc) (*Executor, Target) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Listener.Close()
	srv.Listener, srv.EnableHTTP2, srv.Config.ErrorLog = s, version == 2, quietLog
	// The windows of HTTP/2 would hold the body back before the kernel does.
	srv.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 8 << 20, MaxReceiveBufferPerStream: 8 << 20}
	target := Target{Scheme: "https", Host: "127.0.0.1", Private: true, Timeout: 20 * time.Second, Session: "s"}
	target.Port = int(netip.MustParseAddrPort(s.Addr().String()).Port())
	var e *Executor
	if version == 0 {
		srv.Start()
		target.Scheme = "http"
		e = newExecutor(t)
	} else {
		srv.StartTLS()
		e = newExecutor(t, trusting(srv))
	}
	t.Cleanup(srv.Close)
	return e, target
}

var slowVersions = map[string]int{"plain": 0, "TLS": 1, "HTTP2": 2}

// E5: what the kernel has taken and not sent yet does not leave after the end
// of the session, however long the other side takes to read.
func TestE5_WhatTheKernelHoldsIsDropped(t *testing.T) {
	for name, version := range slowVersions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := listenSipping(t)
			whole := make(chan bool, 1)
			e, target := s.serve(t, version, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				whole <- err == nil
			})
			quiet, end := context.WithCancel(context.Background())
			defer end()
			sent := make(chan struct{})
			target.Quiet, target.Sent = quiet, func() { close(sent) }
			over := make(chan error, 1)
			go func() {
				_, err := e.Do(context.Background(), target, bearer, action.HTTP{Method: "POST", Path: "/up", Body: make([]byte, 1<<20)})
				over <- err
			}()
			select {
			case <-sent:
			case err := <-over:
				close(s.thirst)
				t.Fatal(err)
			case <-time.After(10 * time.Second):
				close(s.thirst)
				t.Fatal("the kernel did not take the request")
			}
			end()
			select {
			case err := <-over:
				if typed, ok := err.(*Error); !ok || !typed.MaybeSent {
					t.Errorf("%v, want an unknown outcome", err)
				}
			case <-time.After(time.Second):
				t.Error("the call goes on")
			}
			before := s.read.Load()
			close(s.thirst)
			if <-whole {
				t.Error("the whole request arrived")
			}
			// What had arrived is read still: some packets of up to 64 KiB, on loopback.
			if late := s.read.Load() - before; late > 256<<10 {
				t.Errorf("%d bytes arrived after the end", late)
			}
		})
	}
}

// E5: a request that has left is not taken back: its outcome is learned.
func TestE5_WhatHasLeftIsAwaited(t *testing.T) {
	for name, version := range slowVersions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := listenSipping(t)
			close(s.thirst)
			got, answer := make(chan struct{}), make(chan struct{})
			e, target := s.serve(t, version, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				close(got)
				<-answer
				io.WriteString(w, "done")
			})
			quiet, end := context.WithCancel(context.Background())
			target.Quiet = quiet
			go func() {
				<-got
				end()
				time.Sleep(20 * time.Millisecond) // for a connection that is reset by mistake
				close(answer)
			}()
			res, err := e.Do(context.Background(), target, bearer, action.HTTP{Method: "POST", Path: "/up", Body: bytes.Repeat([]byte("x"), 200<<10)})
			if err != nil || string(res.Body) != "done" {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}
