package main

import (
	"context"
	"errors"
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
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

var errSeen = errors.New("the key was seen")

// scanHostKeys asks a host for its keys and goes no further: nothing is
// authenticated, and no key of the person is offered.
func scanHostKeys(ctx context.Context, address string) ([]ssh.PublicKey, error) {
	var found []ssh.PublicKey
	var last error
	for _, kinds := range scanKinds {
		key, err := scanHostKey(ctx, address, kinds)
		switch {
		case key != nil:
			found = append(found, key)
		case ctx.Err() != nil:
			return nil, errInterrupted
		default:
			last = err
		}
	}
	if len(found) == 0 {
		return nil, last
	}
	return found, nil
}

func scanHostKey(ctx context.Context, address string, kinds []string) (ssh.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var key ssh.PublicKey
	c, _, _, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:              "yett",
		HostKeyAlgorithms: kinds,
		HostKeyCallback: func(_ string, _ net.Addr, k ssh.PublicKey) error {
			key = k
			return errSeen
		},
	})
	if err == nil { // it cannot go on behind errSeen
		c.Close()
	}
	return key, err
}
