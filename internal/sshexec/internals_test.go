package sshexec

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/dialrule"
)

// The waiting after the exit status is tested on the clock of a bubble.
func TestSettleEnds(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration // output arrives, for ever
		drain time.Duration // both streams end
		want  time.Duration
	}{
		"at once when the streams end": {drain: time.Millisecond, want: time.Millisecond},
		"when nothing comes":           {want: quiet},
		"when output never stops":      {every: quiet / 2, want: lingering},
		"late output is waited for":    {every: quiet / 2, drain: 5 * quiet, want: 5 * quiet},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				arrived, drained := make(chan struct{}, 1), make(chan struct{})
				o := &output{arrived: arrived, drained: drained}
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				wg.Go(func() {
					if c.drain > 0 {
						time.Sleep(c.drain)
						close(drained)
					}
				})
				wg.Go(func() {
					for c.every > 0 && ctx.Err() == nil {
						time.Sleep(c.every)
						select {
						case arrived <- struct{}{}:
						default:
						}
					}
				})
				begin := time.Now()
				o.settle(ctx)
				if took := time.Since(begin); took != c.want {
					t.Errorf("settle took %s, want %s", took, c.want)
				}
				if o.ended() != (c.drain > 0) {
					t.Errorf("ended = %v", o.ended())
				}
			})
		})
	}
}

func TestSettleEndsWithTheCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := &output{arrived: make(chan struct{}), drained: make(chan struct{})}
	begin := time.Now()
	o.settle(ctx)
	if took := time.Since(begin); took >= quiet {
		t.Errorf("settle took %s", took)
	}
}

func TestLegible(t *testing.T) {
	cause := errors.New("a\x1b[2J\r\n\u202eb\u200b" + strings.Repeat("é", 1000))
	err := legible(cause)
	if text := err.Error(); strings.ContainsAny(text, "\x1b\r\n\u202e\u200b") || len([]rune(text)) != 401 || !strings.HasSuffix(text, "…") {
		t.Errorf("legible = %q", text)
	}
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
}

// The address is judged once more where the socket exists.
func TestTheSocketHasTheLastWord(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	for _, rule := range []dialrule.Rule{
		{OwnPorts: func() []int { return nil }},
		{Private: true, OwnPorts: func() []int { return []int{int(at.Port())} }},
	} {
		conn, err := dialOne(ctx, rule, []netip.Addr{at.Addr(), at.Addr()}, at.Port())
		if _, refused := errors.AsType[*dialrule.Refusal](err); !refused {
			t.Errorf("dialOne = %v, %v", conn, err)
		}
	}
}

// The last look before the command is sent: a call that was given up by then
// sends nothing, and knows it.
func TestNothingIsSentOnceTheCallIsGivenUp(t *testing.T) {
	commands := make(chan string, 1)
	host := generate(t)
	conn := dialHost(t, host, commands)
	l, err := handshake(conn, hop{address: "host:22", user: "u", trust: trust{keys: []ssh.PublicKey{host.PublicKey()}}, signer: generate(t)})
	if err != nil {
		t.Fatal(err)
	}
	ch, reqs, err := l.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tg, err := Target{User: "u"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = newPool().adopt(l, "", tg).run(ctx, ch, reqs, tg, action.SSH{Command: "x"})
	var e *Error
	if !errors.As(err, &e) || e.MaybeSent || !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want one that knows that nothing was sent", err)
	}
	if command, sent := <-commands; sent {
		t.Errorf("sent %q", command)
	}
}

func generate(t *testing.T) ssh.Signer {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dialHost connects to a host that tells the commands it gets, and closes
// commands when the connection has ended.
func dialHost(t *testing.T, host ssh.Signer, commands chan<- string) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(host)
	go func() {
		defer close(commands)
		defer accepted.Close()
		_, chans, reqs, err := ssh.NewServerConn(accepted, config)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		for nc := range chans {
			_, reqs, err := nc.Accept()
			if err != nil {
				return
			}
			for req := range reqs {
				commands <- req.Type
				req.Reply(true, nil)
			}
		}
	}()
	return conn
}
