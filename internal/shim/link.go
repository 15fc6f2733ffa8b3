package shim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// link is the way to the broker: at most one channel with one session at a
// time, made when a call needs it. A session that is gone is never mended: the
// next call gets a new channel and a new session, which needs new decisions.
type link struct {
	home    string // of a broker for tests, else empty
	version string
	guard   stdioGuard

	turn     chan struct{} // capacity 1: held while dialling
	failures atomic.Int64  // grows with turn held; says that failure is new
	failure  error         // guarded by turn

	mu      sync.Mutex
	current *attachment
	lost    string // why the one before ended, until an agent was told
	shut    string // why there will be no other
}

// attachment is a channel with its session.
type attachment struct {
	conn    *client.Conn
	session *client.Session

	mu    sync.Mutex
	asked string // the capabilities of the request_access that a card waits for
}

func newLink(home, version string, guard stdioGuard) *link {
	return &link{home: home, version: version, guard: guard, turn: make(chan struct{}, 1)}
}

// openWait bounds the making of a channel and a session. The greeting has its
// own bound; a session may wait a few seconds for the digest of a large agent.
const openWait = 8 * time.Second

var errShut = errors.New("yett-mcp is ending")

// attach returns the session, opening one if there is none. news is what the
// agent must be told about it. Calls that wait while one of them dials share
// what it finds.
func (l *link) attach(ctx context.Context, agent *mcp.Implementation) (a *attachment, news string, err error) {
	seen := l.failures.Load()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	if a, err := l.live(); a != nil || err != nil {
		return a, "", err
	}
	if l.failures.Load() != seen {
		return nil, "", l.failure
	}
	a, err = l.open(ctx, agent)
	if err != nil {
		if ctx.Err() == nil {
			l.failure = err
			l.failures.Add(1)
		}
		return nil, "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut != "" {
		a.conn.Close()
		return nil, "", errShut
	}
	l.current = a
	if l.lost != "" {
		news = "This is a new session with Yett: " + l.lost + " It has no capabilities yet: call request_access, and a person decides anew."
		l.lost = ""
	}
	return a, news, nil
}

// open makes a channel and its session.
func (l *link) open(ctx context.Context, agent *mcp.Implementation) (*attachment, error) {
	loc, err := l.locate()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	conn, err := client.DialLocation(ctx, loc, client.Options{
		Program: program, Version: l.version, Role: client.RoleShim, Labels: l.guard.labels(agent)})
	if err != nil {
		return nil, err
	}
	session, err := conn.OpenSessionPassing(ctx, l.guard.pass, nil, "")
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	return &attachment{conn: conn, session: session}, nil
}

// live returns the attachment if it still stands.
func (l *link) live() (*attachment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut != "" {
		return nil, errShut
	}
	if l.current == nil {
		return nil, nil
	}
	select {
	case <-l.current.conn.Done():
		l.dropLocked(channelEnded(l.current.conn.Err()))
		return nil, nil
	default:
		return l.current, nil
	}
}

// settle looks at what a call on a came back with and drops a session that
// cannot be used any more.
func (l *link) settle(a *attachment, err error) {
	var refused *client.Error
	var closed *client.ClosedError
	why := ""
	switch {
	case errors.As(err, &closed):
		why = channelEnded(closed.Cause)
	case errors.As(err, &refused):
		switch refused.Code {
		case wire.CodeSessionEnded:
			why = "the one before has ended" + endReason(refused) + "."
		case wire.CodeSessionUnknown, wire.CodeWrongChannel, wire.CodeSequenceInvalid:
			why = "the broker no longer accepted the one before (" + refused.Code + ")."
		}
	}
	if why == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == a {
		l.dropLocked(why)
	}
}

func (l *link) dropLocked(why string) {
	l.current.conn.Close()
	l.current, l.lost = nil, why
}

func channelEnded(cause error) string {
	if cause == nil {
		return "the channel of the one before ended."
	}
	return "the channel of the one before ended (" + cause.Error() + ")."
}

func endReason(e *client.Error) string {
	if r, ok := e.Data["end_reason"].(string); ok && r != "" {
		return " (" + r + ")"
	}
	return ""
}

func (l *link) locate() (endpoint.Location, error) {
	if l.home == "" {
		return endpoint.Default()
	}
	return endpoint.InHome(l.home)
}

// close ends channel and session for good.
func (l *link) close(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut == "" {
		l.shut = why
	}
	if l.current != nil {
		l.dropLocked(why)
	}
}
