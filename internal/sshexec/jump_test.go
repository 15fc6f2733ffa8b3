package sshexec_test

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// hopOf is a server on loopback as a host on the way to another.
func hopOf(t testing.TB, name string, s *yetttest.SSHD) sshexec.Hop {
	return sshexec.Hop{Name: name, Address: s.Address, User: s.User, HostKeys: []string{s.HostKey}, Private: true, Signer: signerOf(t, s)}
}

func TestJumpHostsLeadToTheTarget(t *testing.T) {
	outer, inner, last := yetttest.StartSSHD(t), yetttest.StartSSHD(t), yetttest.StartSSHD(t)
	for name, way := range map[string][]sshexec.Hop{
		"over one": {hopOf(t, "outer", outer)},
		"over two": {hopOf(t, "outer", outer), hopOf(t, "inner", inner)},
	} {
		tg := targetOf(last)
		tg.Via, tg.Private = way, false // only the first is dialled from here
		res, err := newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "cat; exit 7", Stdin: []byte("through")})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantStatus(t, res, 7)
		if string(res.Stdout) != "through" || !strings.HasPrefix(res.HostKey, "ssh-ed25519 SHA256:") || !strings.HasSuffix(res.HostKey, fingerprint(t, last.HostKey)) {
			t.Errorf("%s: stdout %q, host key %s", name, res.Stdout, res.HostKey)
		}
	}
	if n := []int{outer.Accepted(), inner.Accepted(), last.Accepted()}; n[0] != 2 || n[1] != 1 || n[2] != 2 {
		t.Errorf("connections: %v", n)
	}
}

func fingerprint(t testing.TB, line string) string {
	t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return ssh.FingerprintSHA256(key)
}

// wantHop is an error at a host of the way, before anything was sent.
func wantHop(t testing.TB, err error, code, hop string) {
	t.Helper()
	if e := wantError(t, err, code, false); e.Hop != hop || hop != "" && !strings.Contains(e.Error(), "jump host "+hop) {
		t.Errorf("at %q: %v, want at %q", e.Hop, e, hop)
	}
}

// Each host has to prove a key that is listed for it. One that does not gets no
// key offered, and nobody behind it is reached.
func TestS03_EachHostOfTheWayIsProved(t *testing.T) {
	outer, last := yetttest.StartSSHD(t), yetttest.StartSSHD(t)
	t.Run("the jump host shows another key", func(t *testing.T) {
		tg := targetOf(last)
		tg.Via = []sshexec.Hop{hopOf(t, "outer", outer)}
		tg.Via[0].HostKeys = []string{last.HostKey} // a key of the way, but not its own
		_, err := newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "true"})
		wantHop(t, err, sshexec.CodeHostKey, "outer")
		if last.Accepted() != 0 {
			t.Error("the target was reached through a host that did not prove itself")
		}
	})
	t.Run("the target shows the jump host's key", func(t *testing.T) {
		tg := targetOf(outer)
		tg.Via = []sshexec.Hop{hopOf(t, "outer", outer)}
		tg.HostKeys = []string{last.HostKey}
		_, err := newExecutor().Do(t.Context(), tg, signerOf(t, outer), action.SSH{Command: "true"})
		wantHop(t, err, sshexec.CodeHostKey, "")
	})
	last.Stop()
	if log := last.Log(); strings.Contains(log, "publickey") {
		t.Errorf("a key was offered:\n%s", log)
	}
}

// jumpServer is a jump host that connects wherever lead says, and notes the keys
// that it was offered.
type jumpServer struct {
	host    ssh.Signer
	lead    func(asked string) (net.Conn, error)
	extra   func(*ssh.ServerConn) // what it asks of the client besides; may be nil
	mu      sync.Mutex
	offered map[string]bool
}

func (j *jumpServer) serve(c net.Conn) {
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.offered == nil {
			j.offered = map[string]bool{}
		}
		j.offered[publicLine(k)] = true
		return nil, nil
	}}
	config.AddHostKey(j.host)
	conn, chans, reqs, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(reqs)
	if j.extra != nil {
		j.extra(conn)
	}
	for nc := range chans {
		var m struct {
			Host       string
			Port       uint32
			Originator string
			FromPort   uint32
		}
		if nc.ChannelType() != "direct-tcpip" || ssh.Unmarshal(nc.ExtraData(), &m) != nil {
			nc.Reject(ssh.UnknownChannelType, "no")
			continue
		}
		up, err := j.lead(net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port))))
		if err != nil {
			nc.Reject(ssh.ConnectionFailed, err.Error())
			continue
		}
		ch, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() {
			defer up.Close()
			io.Copy(up, ch)
		}()
		go func() {
			defer ch.Close()
			io.Copy(ch, up)
		}()
	}
}

func (j *jumpServer) hop(t testing.TB, h *fakeHost, key ssh.Signer) sshexec.Hop {
	return sshexec.Hop{Name: "bastion", Address: h.address, User: "hop", HostKeys: []string{publicLine(j.host.PublicKey())}, Private: true, Signer: key}
}

// A jump host that leads somewhere else than it was asked to gains nothing: the
// one that it leads to cannot prove the target's key.
func TestJumpHostThatLeadsAstray(t *testing.T) {
	last, other := yetttest.StartSSHD(t), yetttest.StartSSHD(t)
	j := &jumpServer{host: newTestKey(t), lead: func(string) (net.Conn, error) { return net.Dial("tcp", other.Address) }}
	h := newFakeHost(t, j.serve)
	tg := targetOf(last)
	tg.Via = []sshexec.Hop{j.hop(t, h, newTestKey(t))}
	_, err := newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "true"})
	wantHop(t, err, sshexec.CodeHostKey, "")
	other.Stop()
	if log := other.Log(); strings.Contains(log, "publickey") {
		t.Errorf("the key was offered to another host:\n%s", log)
	}
}

// Each host sees its own key and no other, whatever it asks for.
func TestP09_NoAgentAndNoOtherKeyAtAnyHost(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "/nowhere")
	refused := make(chan bool, 8)
	ask := func(conn *ssh.ServerConn) {
		for _, kind := range []string{"auth-agent@openssh.com", "x11", "forwarded-tcpip"} {
			_, _, err := conn.OpenChannel(kind, nil)
			refused <- err != nil
		}
	}
	last := yetttest.StartSSHD(t)
	inner := &jumpServer{host: newTestKey(t), extra: ask, lead: func(string) (net.Conn, error) { return net.Dial("tcp", last.Address) }}
	innerHost := newFakeHost(t, inner.serve)
	outer := &jumpServer{host: newTestKey(t), extra: ask, lead: func(string) (net.Conn, error) { return net.Dial("tcp", innerHost.address) }}
	outerHost := newFakeHost(t, outer.serve)
	outerKey, innerKey := newTestKey(t), newTestKey(t)
	tg := targetOf(last)
	tg.Via = []sshexec.Hop{outer.hop(t, outerHost, outerKey), inner.hop(t, innerHost, innerKey)}
	res, err := newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "exit 0"})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 0)
	for range 6 {
		if !<-refused {
			t.Error("a jump host got a channel back")
		}
	}
	for name, c := range map[string]struct {
		j   *jumpServer
		own ssh.Signer
	}{"outer": {outer, outerKey}, "inner": {inner, innerKey}} {
		c.j.mu.Lock()
		if len(c.j.offered) != 1 || !c.j.offered[publicLine(c.own.PublicKey())] {
			t.Errorf("%s was offered %v", name, c.j.offered)
		}
		c.j.mu.Unlock()
	}
}

func TestJumpHostThatDoesNotLeadOn(t *testing.T) {
	last, shut := yetttest.StartSSHD(t), yetttest.StartSSHD(t, "AllowTcpForwarding no")
	tg := targetOf(last)
	tg.Via = []sshexec.Hop{hopOf(t, "shut", shut)}
	_, err := newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "true"})
	wantHop(t, err, sshexec.CodeUpstream, "shut")
	tg.Via[0].Signer = newTestKey(t)
	_, err = newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "true"})
	wantHop(t, err, sshexec.CodeAuth, "shut")
	tg.Via[0].Signer = nil
	_, err = newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "true"})
	wantHop(t, err, sshexec.CodeAuth, "shut")
	tg.Via[0].HostKeys = nil
	_, err = newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "true"})
	wantHop(t, err, sshexec.CodeHostKey, "shut")
	if last.Accepted() != 0 {
		t.Error("the target was reached")
	}
}

// A jump host is dialled by the same rules as any other host.
func TestJumpHostsAreNeverDialledAtForbiddenAddresses(t *testing.T) {
	last := yetttest.StartSSHD(t)
	for address, private := range map[string]bool{"169.254.169.254:22": true, last.Address: false} {
		tg := targetOf(last)
		tg.Via = []sshexec.Hop{hopOf(t, "outer", last)}
		tg.Via[0].Address, tg.Via[0].Private = address, private
		_, err := newExecutor().Do(t.Context(), tg, signerOf(t, last), action.SSH{Command: "true"})
		wantHop(t, err, sshexec.CodeTargetBlocked, "outer")
	}
}

// Deadlines hold through a jump host as without one.
func TestS05_DeadlinesHoldThroughAJumpHost(t *testing.T) {
	silent := newFakeHost(t, swallow)
	for name, lead := range map[string]func(string) (net.Conn, error){
		"the next host says nothing": func(string) (net.Conn, error) { return net.Dial("tcp", silent.address) },
		"the jump host never answers": func(string) (net.Conn, error) {
			time.Sleep(2 * time.Second) // longer than every deadline below
			return nil, errors.New("at last")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &jumpServer{host: newTestKey(t), lead: lead}
			h := newFakeHost(t, j.serve)
			tg := sshexec.Target{Address: "next.example:22", User: "u", HostKeys: []string{publicLine(newTestKey(t).PublicKey())},
				Via: []sshexec.Hop{j.hop(t, h, newTestKey(t))}, DialTimeout: 300 * time.Millisecond, HandshakeTimeout: 300 * time.Millisecond}
			a := receive(t, begin(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"}))
			e := wantError(t, a.err, sshexec.CodeUpstream, false)
			if !strings.Contains(e.Error(), "within 300ms") {
				t.Errorf("err = %v", e)
			}
			happens(t, h.closed, "closing the connection")
		})
	}
}
