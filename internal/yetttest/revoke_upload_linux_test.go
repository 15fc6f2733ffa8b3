package yetttest

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// TestE5_RevokedWhileTheKernelHoldsTheRequest: an upstream with a small buffer
// reads the head of an upload and then nothing, so that the rest waits in the
// kernel. A lock or a revocation drops it there.
func TestE5_RevokedWhileTheKernelHoldsTheRequest(t *testing.T) {
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	l, err := small.Listen(context.Background(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	up := &Upstream{URL: "http://" + l.Addr().String()}
	b := Start(t, up.Access(), "demo", canary)
	for _, end := range []string{"revoke", "lock"} {
		c := b.Granted("http:demo.write")
		var op Operation
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write",
			"action": map[string]any{"method": "POST", "path": "/v1/" + end, "body": strings.Repeat("x", 700<<10)}}), &op)
		conn, err := l.Accept()
		must(t, err)
		conn.SetDeadline(time.Now().Add(Patience))
		head := bufio.NewReaderSize(conn, 512)
		for line := ""; line != "\r\n"; {
			line, err = head.ReadString('\n')
			must(t, err)
		}
		if end == "revoke" {
			b.Must("revoke", c.Session.SessionID)
		} else {
			b.Must("lock")
		}
		late, err := io.Copy(io.Discard, conn)
		if err == nil || late > 128<<10 {
			t.Errorf("%s: %d bytes arrived after it (%v)", end, late, err)
		}
		conn.Close()
		if end == "lock" {
			b.Unlock()
		}
		if state := b.outcomeOf(op.OperationID); state != "indeterminate" {
			t.Errorf("%s: %s", end, state)
		}
	}
}
