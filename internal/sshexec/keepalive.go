package sshexec

import (
	"context"
	"fmt"
	"time"
)

// missed is how many unanswered keepalives make a dead link.
const missed = 3

// watchSilence asks the host for a sign of life at every interval until ctx
// ends, and abandons the link when nothing at all has come for several of them.
// Without it a link that drops packets holds a call until the command's own
// limit, and a kept one is found out only when it is needed.
func (l *link) watchSilence(ctx context.Context, every time.Duration, abandon context.CancelCauseFunc) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	answered := make(chan struct{}, 1)
	answered <- struct{}{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if l.outer.muted.Load() { // nothing asks the host for a sign of life any more
			return
		}
		if silence := l.traffic.silence(); silence >= missed*every {
			abandon(fmt.Errorf("nothing came from the host for %s: the link is dead: %w",
				silence.Round(time.Millisecond), context.DeadlineExceeded))
			return
		}
		select {
		case <-answered:
			go func() { // ends with the answer, or with the connection
				l.SendRequest("keepalive@openssh.com", true, nil)
				answered <- struct{}{}
			}()
		default: // the last one is still on its way
		}
	}
}

// Write sends nothing any more once the link is muted, and does not say so: the
// other end's words are still awaited, and a failed write would end them.
func (t *traffic) Write(b []byte) (int, error) {
	if t.muted.Load() {
		return len(b), nil
	}
	return t.Conn.Write(b)
}
