package yetttest

import (
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/sshexec"
)

// sshServer is an SSH server in this process, for what the one OpenSSH that the
// test account can reach does not do: it leads on to other hosts, lets in keys
// that are made during a test, and answers every command with success.
type sshServer struct {
	Address, User, HostKey string
	ClientKey              []byte
	accepted               atomic.Int64

	mu         sync.Mutex
	authorized map[string]bool
	tried      []string // fingerprints of the keys that it was offered
}

// offered are the keys that it was offered.
func (s *sshServer) offered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tried)
}

func startSSHServer(t *testing.T) *sshServer {
	t.Helper()
	s := &sshServer{User: "hop", authorized: map[string]bool{}}
	hostKey, err := sshexec.GenerateKey(sshexec.KindED25519)
	must(t, err)
	host, err := sshexec.ParseKey(hostKey)
	must(t, err)
	s.HostKey = sshexec.PublicLine(host)
	s.ClientKey, err = sshexec.GenerateKey(sshexec.KindED25519)
	must(t, err)
	client, err := sshexec.ParseKey(s.ClientKey)
	must(t, err)
	s.Authorize(t, sshexec.PublicLine(client))
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tried = append(s.tried, ssh.FingerprintSHA256(k))
		if c.User() != s.User || !s.authorized[string(k.Marshal())] {
			return nil, errors.New("not let in")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s.Address = l.Addr().String()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			go s.serve(c, config)
		}
	}()
	return s
}

// Authorize lets a key in.
func (s *sshServer) Authorize(t *testing.T, line string) {
	t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	must(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorized[string(key.Marshal())] = true
}

func (s *sshServer) serve(c net.Conn, config *ssh.ServerConfig) {
	conn, chans, reqs, err := ssh.NewServerConn(c, config)
	if err != nil {
		c.Close()
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(reqs)
	for nc := range chans {
		switch nc.ChannelType() {
		case "direct-tcpip":
			go s.lead(nc)
		case "session":
			go s.session(nc)
		default:
			nc.Reject(ssh.UnknownChannelType, "no")
		}
	}
}

func (s *sshServer) lead(nc ssh.NewChannel) {
	var m struct {
		Host       string
		Port       uint32
		Originator string
		FromPort   uint32
	}
	if err := ssh.Unmarshal(nc.ExtraData(), &m); err != nil {
		nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	up, err := net.Dial("tcp", net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port))))
	if err != nil {
		nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer up.Close()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	go func() {
		io.Copy(ch, up)
		ch.Close()
	}()
	io.Copy(up, ch)
}

func (s *sshServer) session(nc ssh.NewChannel) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	for r := range reqs {
		r.Reply(r.Type == "exec", nil)
		if r.Type == "exec" {
			ch.SendRequest("exit-status", false, make([]byte, 4))
			ch.Close()
		}
	}
}
