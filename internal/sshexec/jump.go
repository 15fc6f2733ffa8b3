package sshexec

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

// hop is one host of the way, with everything that it takes to prove it and to
// be let in.
type hop struct {
	name    string // of a jump host; empty: the target
	address string
	user    string
	trust   trust
	private bool
	signer  ssh.Signer
}

// way returns the hosts from the first that is dialled to the target itself.
func (t Target) way(s ssh.Signer) ([]hop, *Error) {
	last := Hop{Address: t.Address, User: t.User, HostKeys: t.HostKeys, HostCAs: t.HostCAs, HostNames: t.HostNames,
		Revoked: t.Revoked, Private: t.Private, Signer: s}
	way, fail := ready(t.Via)
	if fail != nil {
		return nil, fail
	}
	one, fail := last.ready()
	if fail != nil {
		return nil, fail
	}
	return append(way, one), nil
}

func ready(via []Hop) ([]hop, *Error) {
	var way []hop
	for _, h := range via {
		if h.Name == "" {
			h.Name = h.Address
		}
		one, fail := h.ready()
		if fail != nil {
			return nil, fail
		}
		way = append(way, one)
	}
	return way, nil
}

func (h Hop) ready() (hop, *Error) {
	one := hop{name: h.Name, address: h.Address, user: h.User, private: h.Private}
	if h.User == "" {
		return one, (&Error{Code: CodeInternal, Cause: fmt.Errorf("no user for %s", h.Address)}).at(one)
	}
	var err error
	if one.trust, err = newTrust(h); err != nil {
		return one, (&Error{Code: CodeHostKey, Cause: err}).at(one)
	}
	if one.signer, err = onlyModern(h.Signer); err != nil {
		return one, (&Error{Code: CodeAuth, Cause: err}).at(one)
	}
	return one, nil
}

// at says which host an error is about, where it is not the target.
func (e *Error) at(h hop) *Error {
	if h.name != "" {
		e.Hop = h.name
		e.Cause = fmt.Errorf("jump host %s: %w", h.name, e.Cause)
	}
	return e
}

// onward has a jump host connect to the next host. The jump host resolves its
// name: what it reaches in its own network is its business, and the next host
// has to prove itself all the same.
func (l *link) onward(ctx context.Context, next hop, limit time.Duration) (net.Conn, *Error) {
	host, portText, err := net.SplitHostPort(next.address)
	if err != nil {
		return nil, &Error{Code: CodeInternal, Cause: fmt.Errorf("reading the address: %w", err)}
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, &Error{Code: CodeInternal, Cause: fmt.Errorf("address %q has no usable port", next.address)}
	}
	message := ssh.Marshal(struct { // RFC 4254, section 7.2
		Host       string
		Port       uint32
		Originator string
		FromPort   uint32
	}{host, uint32(port), "127.0.0.1", 0})
	var ch ssh.Channel
	var reqs <-chan *ssh.Request
	fail := within(ctx, limit, "no connection", l.bottom, func() (err error) {
		if ch, reqs, err = l.OpenChannel("direct-tcpip", message); err != nil {
			return fmt.Errorf("connecting to %s: %w", next.address, err)
		}
		return nil
	})
	if reqs != nil {
		go ssh.DiscardRequests(reqs)
	}
	if fail != nil {
		return nil, fail
	}
	return &tunnel{ch, l.bottom}, nil
}

// tunnel is a connection that a jump host carries. Deadlines are kept by
// closing the connection from this machine.
type tunnel struct {
	ssh.Channel
	bottom net.Conn
}

func (t *tunnel) LocalAddr() net.Addr                 { return t.bottom.LocalAddr() }
func (t *tunnel) RemoteAddr() net.Addr                { return t.bottom.RemoteAddr() }
func (t *tunnel) SetDeadline(at time.Time) error      { return t.bottom.SetDeadline(at) }
func (t *tunnel) SetReadDeadline(at time.Time) error  { return t.bottom.SetReadDeadline(at) }
func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.bottom.SetWriteDeadline(at) }
