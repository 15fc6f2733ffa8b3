package sshexec_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
)

// swallow reads until the other end closes.
func swallow(c net.Conn) { io.Copy(io.Discard, c) }

// say sends text, then waits for the other end to close.
func say(text string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, text)
		swallow(c)
	}
}

// repeat sends text for ever.
func repeat(first, text string, pause time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		go swallow(c)
		io.WriteString(c, first)
		for {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}

// mute is a connection on which only the first writes get through.
type mute struct {
	net.Conn
	left int
}

func (m *mute) Write(b []byte) (int, error) {
	if m.left == 0 {
		return len(b), nil
	}
	m.left--
	return m.Conn.Write(b)
}

// silentAfter is a real SSH server whose writes stop getting through.
func silentAfter(host ssh.Signer, writes int) func(net.Conn) {
	return func(c net.Conn) {
		serveSSH(&mute{c, writes}, host, func(conn *ssh.ServerConn, _ <-chan ssh.NewChannel) { conn.Wait() })
		swallow(c)
	}
}

// bannersForEver authenticates nobody, and greets.
func bannersForEver(host ssh.Signer) func(net.Conn) {
	return func(c net.Conn) {
		gone := make(chan struct{})
		config := &ssh.ServerConfig{
			PreAuthConnCallback: func(p ssh.ServerPreAuthConn) {
				go func() {
					defer close(gone)
					for p.SendAuthBanner(strings.Repeat("wait ", 1000)) == nil {
					}
				}()
			},
			PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
				<-gone
				return nil, errors.New("never")
			},
		}
		config.AddHostKey(host)
		ssh.NewServerConn(c, config)
	}
}

func TestS05_HandshakeDeadlineHoldsAgainstEveryServer(t *testing.T) {
	host := newTestKey(t)
	for name, serve := range map[string]func(net.Conn){
		"accepts and says nothing":       swallow,
		"lines before the version, slow": repeat("", "welcome\r\n", time.Millisecond),
		"lines before the version, fast": repeat("", "welcome\r\n", 0),
		"one line without an end":        repeat("", "x", time.Millisecond),
		"version drips":                  repeat("SSH-2.0-", "a", 20*time.Millisecond),
		"stops after the version":        say("SSH-2.0-OpenSSH_9.9\r\n"),
		"another protocol: HTTP":         say("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
		"another protocol: SMTP":         say("220 mail.example ESMTP\r\n"),
		"another protocol: TLS alert":    say("\x15\x03\x01\x00\x02\x02\x28"),
		"old version":                    say("SSH-1.5-old\r\n"),
		"noise after the version":        repeat("SSH-2.0-x\r\n", "\x00\x00\x00\x0cnonsense....", time.Millisecond),
		"huge packet announced":          say("SSH-2.0-x\r\n\x7f\xff\xff\xff\x04"),
		"packet drips":                   repeat("SSH-2.0-x\r\n\x00\x00\x80\x00\x04\x14", "\x00", time.Millisecond),
		"stops after KEXINIT":            silentAfter(host, 2),
		"stops in the key exchange":      silentAfter(host, 3),
		"stops in authentication":        silentAfter(host, 5),
		"banners in authentication":      bannersForEver(host),
		"authenticates, opens no session": func(c net.Conn) {
			serveSSH(c, host, func(conn *ssh.ServerConn, _ <-chan ssh.NewChannel) { conn.Wait() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeHost(t, serve)
			tg := hostTarget(h, host)
			tg.HandshakeTimeout = 500 * time.Millisecond
			a := receive(t, begin(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"}))
			e := wantError(t, a.err, sshexec.CodeUpstream, false)
			if len(e.Error()) > 2000 || strings.ContainsAny(e.Error(), "\x1b\r\n\x00") {
				t.Errorf("error text is not fit to print: %q", e.Error())
			}
			happens(t, h.closed, "closing the connection")
		})
	}
}

func TestS05_CancelEndsTheHandshake(t *testing.T) {
	h := newFakeHost(t, swallow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tg := hostTarget(h, newTestKey(t))
	tg.HandshakeTimeout = time.Hour
	c := begin(ctx, tg, newTestKey(t), action.SSH{Command: "x"})
	happens(t, h.accepted, "connecting")
	cancel()
	a := receive(t, c)
	if e := wantError(t, a.err, sshexec.CodeUpstream, false); !errors.Is(e, context.Canceled) {
		t.Errorf("cause = %v", e.Cause)
	}
	happens(t, h.closed, "closing the connection")
}

// A host's own words reach the person through an error: they are capped, and
// they cannot draw on a terminal.
func TestWordsOfTheHostAreMadeLegible(t *testing.T) {
	host := newTestKey(t)
	h := newFakeHost(t, func(c net.Conn) {
		serveSSH(c, host, func(_ *ssh.ServerConn, chans <-chan ssh.NewChannel) {
			for nc := range chans {
				nc.Reject(ssh.Prohibited, "no \x1b[2J\u202e"+strings.Repeat("x", 10000))
			}
		})
	})
	_, err := newExecutor().Do(t.Context(), hostTarget(h, host), newTestKey(t), action.SSH{Command: "x"})
	e := wantError(t, err, sshexec.CodeUpstream, false)
	if text := e.Error(); len(text) > 2000 || strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("error has %d bytes: %.100q", len(text), text)
	}
}
