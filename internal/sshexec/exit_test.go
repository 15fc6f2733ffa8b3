package sshexec_test

import (
	"encoding/binary"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

func TestS07_StatusSignalAndUnknownAreThreeResults(t *testing.T) {
	s := yetttest.StartSSHD(t)
	for command, want := range map[string]string{
		"exit 0":        `{"status":0}`,
		"exit 3":        `{"status":3}`,
		"exit 255":      `{"status":255}`,
		"kill -TERM $$": `{"signal":"TERM"}`,
		"kill -KILL $$": `{"signal":"KILL"}`,
	} {
		if got := show(perform(t, s, command).Exit); got != want {
			t.Errorf("%s: exit = %s, want %s", command, got, want)
		}
	}
}

func TestS07_KilledServerIsUnknown(t *testing.T) {
	s := yetttest.StartSSHD(t)
	g := newGate(t)
	c := begin(t.Context(), targetOf(s), signerOf(t, s), action.SSH{Command: g.tell() + "; " + g.hold()})
	g.wait(t)
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a := receive(t, c)
	if a.err != nil || show(a.res.Exit) != `{"unknown":true}` {
		t.Errorf("result = %+v, %v", a.res, a.err)
	}
}

// session is what a test's server does once an exec request came.
type session func(conn *ssh.ServerConn, ch ssh.Channel, req *ssh.Request)

// newSSHHost is a server that lets any key in.
func newSSHHost(t testing.TB, do session) (*fakeHost, sshexec.Target) {
	t.Helper()
	host := newTestKey(t)
	h := newFakeHost(t, func(c net.Conn) {
		serveSSH(c, host, func(conn *ssh.ServerConn, chans <-chan ssh.NewChannel) {
			for nc := range chans {
				ch, reqs, err := nc.Accept()
				if err != nil {
					return
				}
				for req := range reqs {
					if req.Type == "exec" {
						go ssh.DiscardRequests(reqs)
						do(conn, ch, req)
						return
					}
					req.Reply(false, nil)
				}
			}
		})
	})
	return h, hostTarget(h, host)
}

func hostTarget(h *fakeHost, host ssh.Signer) sshexec.Target {
	return sshexec.Target{Address: h.address, User: "deploy", HostKeys: []string{publicLine(host.PublicKey())}, Private: true}
}

func serveSSH(c net.Conn, host ssh.Signer, serve func(*ssh.ServerConn, <-chan ssh.NewChannel)) {
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(host)
	conn, chans, reqs, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(reqs)
	serve(conn, chans)
}

func exitStatus(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func exitSignal(name string) []byte {
	return ssh.Marshal(struct {
		Signal  string
		Core    bool
		Message string
		Lang    string
	}{name, false, "a message\x1b[2J of the host", ""})
}

func TestS07_WhatHostsSayOfTheEnd(t *testing.T) {
	send := func(kind string, payload []byte) session {
		return func(_ *ssh.ServerConn, ch ssh.Channel, req *ssh.Request) {
			req.Reply(true, nil)
			ch.SendRequest(kind, false, payload)
			ch.Close()
		}
	}
	for name, c := range map[string]struct {
		do   session
		want string
	}{
		"closed without a word":   {func(_ *ssh.ServerConn, ch ssh.Channel, req *ssh.Request) { req.Reply(true, nil); ch.Close() }, `{"unknown":true}`},
		"connection closed":       {func(conn *ssh.ServerConn, _ ssh.Channel, req *ssh.Request) { req.Reply(true, nil); conn.Close() }, `{"unknown":true}`},
		"status":                  {send("exit-status", exitStatus(0)), `{"status":0}`},
		"large status":            {send("exit-status", exitStatus(1<<32-1)), `{"status":4294967295}`},
		"short status":            {send("exit-status", []byte{0, 0, 0}), `{"unknown":true}`},
		"empty status":            {send("exit-status", nil), `{"unknown":true}`},
		"long status":             {send("exit-status", make([]byte, 5)), `{"unknown":true}`},
		"signal":                  {send("exit-signal", exitSignal("TERM")), `{"signal":"TERM"}`},
		"signal of one system":    {send("exit-signal", exitSignal("SEGV@openssh.com")), `{"signal":"SEGV@openssh.com"}`},
		"nameless signal":         {send("exit-signal", exitSignal("")), `{"unknown":true}`},
		"signal with escapes":     {send("exit-signal", exitSignal("TERM\x1b[2J")), `{"unknown":true}`},
		"signal without the rest": {send("exit-signal", []byte{0, 0, 0, 9}), `{"unknown":true}`},
		"two words, the first counts": {func(_ *ssh.ServerConn, ch ssh.Channel, req *ssh.Request) {
			req.Reply(true, nil)
			ch.SendRequest("exit-signal", false, exitSignal("KILL"))
			ch.SendRequest("exit-status", false, exitStatus(0))
			ch.Close()
		}, `{"signal":"KILL"}`},
	} {
		t.Run(name, func(t *testing.T) {
			_, tg := newSSHHost(t, c.do)
			res, err := newExecutor().Do(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if got := show(res.Exit); got != c.want {
				t.Errorf("exit = %s, want %s", got, c.want)
			}
		})
	}
}

func TestRefusedCommandWasNotRun(t *testing.T) {
	_, tg := newSSHHost(t, func(conn *ssh.ServerConn, _ ssh.Channel, req *ssh.Request) {
		req.Reply(false, nil)
		conn.Wait()
	})
	_, err := newExecutor().Do(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"})
	wantError(t, err, sshexec.CodeUpstream, false)
}

func TestConnectionLostBeforeTheAnswerMaybeSent(t *testing.T) {
	_, tg := newSSHHost(t, func(conn *ssh.ServerConn, _ ssh.Channel, _ *ssh.Request) { conn.Close() })
	_, err := newExecutor().Do(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"})
	wantError(t, err, sshexec.CodeUpstream, true)
}

func TestNoAnswerToTheCommandMaybeSent(t *testing.T) {
	_, tg := newSSHHost(t, func(conn *ssh.ServerConn, _ ssh.Channel, _ *ssh.Request) { conn.Wait() })
	tg.RunTimeout = 300 * time.Millisecond
	a := receive(t, begin(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"}))
	wantError(t, a.err, sshexec.CodeUpstream, true)
}

// A host that was given a command may ask for channels back, above all to the
// agent of whoever runs Yett.
func TestHostGetsNoChannelsBack(t *testing.T) {
	kinds := []string{"auth-agent@openssh.com", "x11", "forwarded-tcpip", "forwarded-streamlocal@openssh.com", "session"}
	answers := make(chan error, len(kinds))
	_, tg := newSSHHost(t, func(conn *ssh.ServerConn, ch ssh.Channel, req *ssh.Request) {
		req.Reply(true, nil)
		for _, kind := range kinds {
			_, _, err := conn.OpenChannel(kind, nil)
			answers <- err
		}
		ch.SendRequest("exit-status", false, exitStatus(0))
		ch.Close()
	})
	res, err := newExecutor().Do(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 0)
	for _, kind := range kinds {
		if err := <-answers; err == nil {
			t.Errorf("the host was given a channel of type %s", kind)
		} else if oc, ok := err.(*ssh.OpenChannelError); !ok || oc.Reason != ssh.Prohibited {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// What a host sends at the time of the command's end must not grow without
// bound or stop the call.
func TestFloodOfRequestsDoesNotHoldTheCall(t *testing.T) {
	h, tg := newSSHHost(t, func(_ *ssh.ServerConn, ch ssh.Channel, req *ssh.Request) {
		req.Reply(true, nil)
		for {
			if _, err := ch.SendRequest("nonsense", false, make([]byte, 1024)); err != nil {
				return
			}
		}
	})
	tg.RunTimeout = 300 * time.Millisecond
	a := receive(t, begin(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"}))
	wantError(t, a.err, sshexec.CodeUpstream, true)
	happens(t, h.closed, "closing the connection")
}
