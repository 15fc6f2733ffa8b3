package macos

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
)

// TokenSource gives the audit token of whoever used the other end of a socket
// last (LOCAL_PEERTOKEN). It is the system, or a script in tests.
type TokenSource interface {
	PeerToken() (Token, error)
}

// Moments at which the token of a peer is read, in their order.
const (
	AtAccept       = "when it connected"
	AtFirstRequest = "after its first request"
	BeforeRelease  = "before the answer"
)

// ErrOtherProcess means that the other end is not the process that connected.
var ErrOtherProcess = errors.New("the socket is used by another process than connected")

// Bracket holds a channel to one process. The kernel answers for the last
// process that used the socket, so one look proves nothing: a descriptor that
// was passed on shows only once its new holder has used it. The token is read
// when the channel is accepted, after the first request, and before each answer
// is released, and all 32 bytes have to be the same each time. Between two
// looks a second holder can still have written and the first have used the
// socket again; the nonce that the first answer carries, and that only a reader
// of this end can repeat, narrows that, and the threat model says what is left.
type Bracket struct {
	source TokenSource

	mu    sync.Mutex
	first Token
	lost  error // once lost, for ever
}

// NewBracket reads the token for the first time.
func NewBracket(source TokenSource) (*Bracket, error) {
	t, err := source.PeerToken()
	if err != nil {
		return nil, fmt.Errorf("reading the audit token %s: %w", AtAccept, err)
	}
	if _, err := ParseToken(t[:]); err != nil {
		return nil, err
	}
	return &Bracket{source: source, first: t}, nil
}

// Token is what was read when the channel was accepted.
func (b *Bracket) Token() Token { return b.first }

// Look reads the token again. A failure to read is a change: partial evidence
// is no evidence. A bracket that was broken stays broken, also when the first
// process uses the socket again.
func (b *Bracket) Look(moment string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost != nil {
		return b.lost
	}
	t, err := b.source.PeerToken()
	switch {
	case err != nil:
		b.lost = fmt.Errorf("reading the audit token %s: %w", moment, err)
	case !bytes.Equal(t[:], b.first[:]):
		b.lost = fmt.Errorf("%w: %s %v, %s %v", ErrOtherProcess, AtAccept, b.first, moment, t)
	}
	return b.lost
}
