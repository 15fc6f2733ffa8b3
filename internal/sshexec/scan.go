package sshexec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
)

// scanTime bounds the question for one kind of key.
const scanTime = 10 * time.Second

// scanKinds are the kinds of keys that a host is asked for, each by offering
// this kind alone.
var scanKinds = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	rsaSHA2,
}

var errSeen = errors.New("the key was seen")

// AskHostKeys asks a host for its keys and goes no further: the host is not
// believed, nothing is authenticated and no key of the person is offered. dial
// connects to the host, once for each kind of key. Cutting the connections when
// ctx ends is done here.
func AskHostKeys(ctx context.Context, address string, dial func(context.Context) (net.Conn, error)) ([]ssh.PublicKey, error) {
	var found []ssh.PublicKey
	var first error
	for _, kinds := range scanKinds {
		key, err := askHostKey(ctx, address, kinds, dial)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case key != nil:
			found = append(found, key)
		case first == nil:
			first = err
		}
	}
	if len(found) == 0 {
		return nil, legible(first)
	}
	return found, nil
}

func askHostKey(ctx context.Context, address string, kinds []string, dial func(context.Context) (net.Conn, error)) (ssh.PublicKey, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanTime, fmt.Errorf("no key within %s: %w", scanTime, context.DeadlineExceeded))
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, whyEnded(ctx, err)
	}
	defer conn.Close()
	// Through a jump host the deadline is that of the connection to it: what
	// goes on inside a connection that hangs cannot be ended otherwise.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var key ssh.PublicKey
	c, _, _, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:              "yett",
		ClientVersion:     "SSH-2.0-Yett",
		HostKeyAlgorithms: kinds,
		HostKeyCallback: func(_ string, _ net.Addr, k ssh.PublicKey) error {
			key = k
			return errSeen
		},
	})
	if err == nil { // it cannot go on behind errSeen
		c.Close()
	}
	return key, whyEnded(ctx, err)
}

// HostKeys asks a host that others lead to for the keys that it shows. Each host
// of the way has to prove a key that is listed for it and is authenticated to with
// its own; the last one connects to the address, which is asked and no more. Every
// error is an *Error.
func (e *Executor) HostKeys(ctx context.Context, address string, via []Hop) ([]ssh.PublicKey, error) {
	way, fail := ready(via)
	if fail == nil && len(way) == 0 {
		fail = &Error{Code: CodeInternal, Cause: errors.New("no host leads there")}
	}
	if fail != nil {
		return nil, fail
	}
	l, fail := e.reach(ctx, way, DefaultDialTimeout, DefaultHandshakeTimeout)
	if fail != nil {
		return nil, fail
	}
	defer l.Close()
	keys, err := AskHostKeys(ctx, address, func(ctx context.Context) (net.Conn, error) {
		conn, fail := l.onward(ctx, hop{address: address}, DefaultDialTimeout)
		if fail != nil {
			return nil, fail.at(way[len(way)-1])
		}
		return conn, nil
	})
	if err == nil {
		return keys, nil
	}
	if fail, ok := errors.AsType[*Error](err); ok {
		return nil, fail
	}
	return nil, &Error{Code: CodeUpstream, Cause: err}
}
