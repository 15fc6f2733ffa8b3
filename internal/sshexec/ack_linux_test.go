package sshexec

import (
	"io"
	"net"
	"testing"
	"time"
)

// A server that leaves Nagle's algorithm on and answers in two small packets is
// held up by every delayed acknowledgement, 40 ms each time.
func TestSmallAnswersAreNotHeldUp(t *testing.T) {
	const rounds = 10
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
		c.(*net.TCPConn).SetNoDelay(false)
		for b := make([]byte, 1); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
			c.Write(b)
			c.Write(b)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	tr := &traffic{Conn: c, begin: time.Now(), ack: promptly(c)}
	best := time.Hour // of several, since the machine may be busy
	for range 5 {
		begin := time.Now()
		for range rounds {
			if _, err := tr.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(tr, make([]byte, 2)); err != nil {
				t.Fatal(err)
			}
		}
		best = min(best, time.Since(begin))
	}
	if best > rounds*20*time.Millisecond {
		t.Errorf("%d answers took %s at best", rounds, best)
	}
}
