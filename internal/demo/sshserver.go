package demo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/user"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	builtinHandshake = 15 * time.Second // a connection that has not authenticated by then is closed
	builtinLife      = 10 * time.Minute // no connection lives longer
	builtinStdin     = 1 << 20          // bytes of standard input that a command takes
)

// StartBuiltinSSHD starts an SSH server inside this process, for a machine
// without OpenSSH. It starts no program: it knows a handful of commands and
// answers them itself, so its output says nothing about the machine.
func StartBuiltinSSHD() (*SSHD, error) {
	name := "demo" // for an account without a name
	if me, err := user.Current(); err == nil {
		name = me.Username
	}
	hostPEM, hostLine, err := newKey()
	if err != nil {
		return nil, err
	}
	clientPEM, clientLine, err := newKey()
	if err != nil {
		return nil, err
	}
	host, err := ssh.ParsePrivateKey(hostPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the host key: %w", err)
	}
	s := &SSHD{
		User: name, HostKey: hostLine, ClientKey: clientPEM, Builtin: true,
		conns: make(map[net.Conn]bool),
	}
	config := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-Yett-demo",
		PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
			if c.User() != name || line != clientLine {
				return nil, errors.New("not the authorized key and account")
			}
			return nil, nil
		},
		AuthLogCallback: func(c ssh.ConnMetadata, method string, err error) {
			s.logf("%s from %s: %v\n", method, c.RemoteAddr(), err)
		},
	}
	config.AddHostKey(host)
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s.Address = s.listener.Addr().String()
	s.serving.Go(func() { s.acceptBuiltin(config) })
	return s, nil
}

func (s *SSHD) acceptBuiltin(config *ssh.ServerConfig) {
	begin := time.Now()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.accepted.Add(1)
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			conn.Close()
			return
		}
		s.conns[conn] = true
		s.serving.Go(func() {
			s.serveBuiltin(conn, config, begin)
			conn.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, conn)
		})
		s.mu.Unlock()
	}
}

func (s *SSHD) serveBuiltin(conn net.Conn, config *ssh.ServerConfig, begin time.Time) {
	conn.SetDeadline(time.Now().Add(builtinHandshake))
	c, chans, reqs, err := ssh.NewServerConn(conn, config)
	if err != nil {
		s.logf("handshake with %s: %v\n", conn.RemoteAddr(), err)
		return
	}
	defer c.Close()
	conn.SetDeadline(time.Now().Add(builtinLife))
	go ssh.DiscardRequests(reqs)
	for nc := range chans {
		if nc.ChannelType() != "session" {
			nc.Reject(ssh.Prohibited, "only sessions")
			continue
		}
		ch, chReqs, err := nc.Accept()
		if err != nil {
			return
		}
		s.serving.Go(func() { s.serveSession(ch, chReqs, begin) })
	}
}

// serveSession answers one exec request and refuses everything else.
func (s *SSHD) serveSession(ch ssh.Channel, reqs <-chan *ssh.Request, begin time.Time) {
	defer ch.Close()
	for req := range reqs {
		var exec struct{ Command string }
		if req.Type != "exec" || ssh.Unmarshal(req.Payload, &exec) != nil {
			if req.WantReply {
				req.Reply(false, nil)
			}
			continue
		}
		req.Reply(true, nil)
		go ssh.DiscardRequests(reqs)
		s.logf("command %q\n", exec.Command)
		status := builtin(exec.Command, ch, begin)
		ch.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, status))
		return
	}
}

// builtin answers one command line of plain words.
func builtin(line string, ch ssh.Channel, begin time.Time) (status uint32) {
	words := strings.Fields(line)
	if len(words) == 0 || strings.ContainsAny(line, "'\"\\$`;&|<>(){}*?[]~#\n") {
		fmt.Fprintln(ch.Stderr(), "demo: only single commands of plain words are understood here")
		return 2
	}
	name, args := words[0], words[1:]
	switch name {
	case "uptime":
		fmt.Fprintf(ch, "up %s, the demonstration server inside yett\n", time.Since(begin).Round(time.Second))
	case "echo":
		fmt.Fprintln(ch, strings.Join(args, " "))
	case "hostname":
		fmt.Fprintln(ch, "yett-demo")
	case "whoami":
		fmt.Fprintln(ch, "demo")
	case "date":
		fmt.Fprintln(ch, time.Now().UTC().Format(time.RFC3339))
	case "cat":
		return cat(args, ch)
	case "true":
	case "false":
		return 1
	case "exit":
		return exitStatus(args, ch)
	default:
		fmt.Fprintf(ch.Stderr(), "demo: %s: command not found\n", name)
		return 127
	}
	return 0
}

// cat gives back its standard input; it opens no file.
func cat(args []string, ch ssh.Channel) uint32 {
	if len(args) != 0 {
		fmt.Fprintln(ch.Stderr(), "demo: cat reads its standard input only")
		return 1
	}
	var in bytes.Buffer
	if _, err := io.Copy(&in, io.LimitReader(ch, builtinStdin)); err != nil {
		return 1
	}
	ch.Write(in.Bytes())
	return 0
}

func exitStatus(args []string, ch ssh.Channel) uint32 {
	if len(args) == 0 {
		return 0
	}
	status, err := strconv.ParseUint(args[0], 10, 8)
	if err != nil || len(args) > 1 {
		fmt.Fprintln(ch.Stderr(), "demo: exit takes one number from 0 to 255")
		return 2
	}
	return uint32(status)
}
