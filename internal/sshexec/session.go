package sshexec

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/crypto/ssh"
)

// open opens a session on the link. No command was sent when it fails.
func (l *link) open(ctx context.Context, limit time.Duration) (ssh.Channel, <-chan *ssh.Request, error) {
	octx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the host opened no session within %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	stop := context.AfterFunc(octx, func() { l.Close() })
	defer stop()
	ch, reqs, err := l.OpenChannel("session", nil)
	if err != nil {
		return nil, nil, refused(octx, fmt.Errorf("opening a session: %w", err))
	}
	if !stop() { // octx has ended, and the connection with it
		go ssh.DiscardRequests(reqs)
		return nil, nil, &Error{Code: CodeUpstream, Cause: context.Cause(octx)}
	}
	return ch, reqs, nil
}
