package main

import (
	"context"
	"net"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/sshexec"
)

// scanHostKeys asks a host that is reached from here for its keys. This process
// has no key that it could offer.
func scanHostKeys(ctx context.Context, address string) ([]ssh.PublicKey, error) {
	keys, err := sshexec.AskHostKeys(ctx, address, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	return keys, err
}
