package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	// helloTimeout bounds the greeting when the caller's context does not.
	helloTimeout = 3 * time.Second
	// writeTimeout bounds one frame: a broker that does not read for so long
	// is not going to answer.
	writeTimeout = 10 * time.Second
)

// errClosedHere is the cause after Close.
var errClosedHere = errors.New("closed by this program")

// stream is an endpoint.Conn. What it reads was written by the broker.
type stream interface {
	Read(b []byte) (int, error)
	Write(b []byte) (int, error)
	WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
	SetWriteDeadline(t time.Time) error
	Close() error
}

// Conn is one authenticated channel to the broker. Its methods may be used by
// several goroutines at once.
type Conn struct {
	conn  stream
	hello HelloResult

	writeMu sync.Mutex // order of numbers is order on the socket
	nextID  int64

	mu      sync.Mutex
	waiting map[int64]chan reply // nil after the end
	err     error

	done chan struct{}
}

type reply struct {
	result wire.Result
	fail   *Error
}

// Dial connects to this account's broker, authenticates it and greets it.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	loc, err := endpoint.Default()
	if err != nil {
		return nil, fmt.Errorf("finding the broker's endpoint: %w", err)
	}
	return DialLocation(ctx, loc, o)
}

// DialHome connects to a broker that was started with --home dir.
func DialHome(ctx context.Context, dir string, o Options) (*Conn, error) {
	loc, err := endpoint.InHome(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the broker's endpoint: %w", err)
	}
	return DialLocation(ctx, loc, o)
}

// DialLocation connects to the broker at a location that Yett's own programs
// have already found.
func DialLocation(ctx context.Context, loc endpoint.Location, o Options) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	ec, err := endpoint.Dial(ctx, loc)
	if err != nil {
		return nil, fmt.Errorf("reaching the broker: %w", err)
	}
	c, err := greet(ctx, ec, o)
	if err != nil {
		return nil, silent(loc, err)
	}
	return c, nil
}

// silent tells a broker that does not greet, and one that somebody else speaks
// for, from one that refuses the greeting.
func silent(loc endpoint.Location, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &UnavailableError{Cause: NotAnswering, Socket: loc.Socket, Err: err}
	case errors.Is(err, endpoint.ErrSender):
		return &UnavailableError{Cause: Imposter, Socket: loc.Socket, Err: err}
	}
	return err
}

// greet is the first exchange on a channel whose broker has proven itself.
func greet(ctx context.Context, s stream, o Options) (*Conn, error) {
	c := &Conn{conn: s, waiting: map[int64]chan reply{}, done: make(chan struct{})}
	go c.read()
	role := o.Role
	if role == "" {
		role = RoleNative
	}
	min, max := wire.ProtocolMin, wire.ProtocolMax
	if o.Stable {
		min, max = wire.ProtocolStable, wire.ProtocolStable
	}
	err := c.Call(ctx, wire.MethodHello, wire.Hello{
		ProtocolMin: min, ProtocolMax: max,
		Program: o.Program, Version: o.Version, Role: role, Labels: o.Labels,
	}, &c.hello)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("greeting the broker: %w", err)
	}
	return c, nil
}

// Hello returns what the broker answered to the greeting.
func (c *Conn) Hello() HelloResult { return c.hello }

// ChannelID returns the name that the broker gave this channel.
func (c *Conn) ChannelID() string { return c.hello.ChannelID }

// Done is closed when the channel has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the channel ended, or nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the channel and with it the session. Calls that still wait get a
// *ClosedError.
func (c *Conn) Close() error {
	c.end(errClosedHere)
	return nil
}

// Call sends a request and waits for its reply; result may be nil. A refusal
// is an *Error. When ctx ends first the request stays with the broker.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	return c.roundTrip(ctx, method, func() any { return params }, nil, nil, result)
}

// roundTrip builds and writes a request under the write lock, so that numbers
// which build takes arrive in order; sent is called, still under the lock,
// once the request is certain to be written.
func (c *Conn) roundTrip(ctx context.Context, method string, build func() any, sent func(), pass *os.File, result any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	id, answer, err := c.send(method, build, sent, pass)
	if err != nil {
		return err
	}
	var r reply
	var ok bool
	select {
	case r, ok = <-answer:
	case <-ctx.Done():
		c.forget(id)
		return ctx.Err()
	}
	switch {
	case !ok:
		return &ClosedError{Sent: true, Cause: c.Err()}
	case r.fail != nil:
		return r.fail
	case result == nil:
		return nil
	}
	if err := r.result.Decode(result); err != nil {
		return fmt.Errorf("reading the reply to %s: %w", method, err)
	}
	return nil
}

func (c *Conn) send(method string, build func() any, sent func(), pass *os.File) (int64, <-chan reply, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	id := c.nextID + 1
	frame, err := wire.EncodeRequest(id, method, build())
	if err != nil {
		return 0, nil, fmt.Errorf("encoding %s: %w", method, err)
	}
	answer := make(chan reply, 1)
	c.mu.Lock()
	if c.waiting == nil {
		err := c.err
		c.mu.Unlock()
		return 0, nil, &ClosedError{Cause: err}
	}
	c.waiting[id] = answer
	c.mu.Unlock()
	c.nextID = id
	if sent != nil {
		sent()
	}
	written, err := c.write(frame, pass)
	if err != nil {
		c.end(fmt.Errorf("writing to the broker: %w", err))
		if written < len(frame) { // the broker acts on whole lines only
			return 0, nil, &ClosedError{Cause: c.Err()}
		}
	}
	return id, answer, nil
}

// write writes a frame, with a copy of a descriptor riding on its first byte.
func (c *Conn) write(frame []byte, pass *os.File) (int, error) {
	if err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	if pass == nil {
		return c.conn.Write(frame)
	}
	raw, err := pass.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var werr error
	err = raw.Control(func(fd uintptr) {
		n, _, werr = c.conn.WriteMsgUnix(frame, syscall.UnixRights(int(fd)), nil)
	})
	if err != nil || werr != nil || n == len(frame) {
		return n, errors.Join(err, werr)
	}
	m, err := c.conn.Write(frame[n:])
	return n + m, err
}

func (c *Conn) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// read hands replies to those who wait until the channel ends.
func (c *Conn) read() {
	frames := wire.NewFrameReader(c.conn)
	for {
		frame, err := frames.Next()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				err = errors.New("the broker closed it")
			}
			c.end(err)
			return
		}
		id, result, fail, err := wire.DecodeReply(frame)
		switch {
		case err != nil:
			c.end(fmt.Errorf("reading a reply: %w", err))
			return
		case id == 0 && fail != nil: // about no request in particular
			c.end(fail)
			return
		}
		c.mu.Lock()
		answer := c.waiting[id]
		delete(c.waiting, id)
		c.mu.Unlock()
		if answer != nil {
			answer <- reply{result, fail}
		}
	}
}

func (c *Conn) end(cause error) {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	if c.err == nil {
		c.err = cause
	}
	c.mu.Unlock()
	if waiting == nil {
		return
	}
	c.conn.Close() // what it says cannot change anything any more
	for _, answer := range waiting {
		close(answer)
	}
	close(c.done)
}
