package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

const patience = 10 * time.Second

// pair returns the two ends of a real stream socket.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		syscall.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

// peer is the broker's end: it decodes strictly, as the broker does.
type peer struct {
	t      *testing.T
	c      *net.UnixConn
	frames *wire.FrameReader
}

type ask struct {
	id     json.RawMessage
	method string
	params json.RawMessage
}

func (p *peer) next() (ask, error) {
	frame, err := p.frames.Next()
	if err != nil {
		return ask{}, err
	}
	req, bad := wire.DecodeRequest(frame)
	if bad != nil {
		p.t.Errorf("the client sent what the socket refuses: %v: %s", bad, frame)
		return ask{}, bad
	}
	return ask{bytes.Clone(req.ID), req.Method, bytes.Clone(req.Params)}, nil
}

func (p *peer) reply(a ask, result any, fail *wire.Error) {
	b, err := wire.Reply{ID: a.id, Result: result, Error: fail}.Encode()
	if err != nil {
		p.t.Errorf("encoding: %v", err)
	}
	if _, err := p.c.Write(b); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
		p.t.Errorf("replying: %v", err)
	}
}

// connect greets a broker that then does what serve says.
func connect(t *testing.T, serve func(*peer)) *Conn {
	t.Helper()
	ours, theirs := pair(t)
	p := &peer{t: t, c: theirs, frames: wire.NewFrameReader(theirs)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a, err := p.next()
		if err != nil {
			return
		}
		p.reply(a, HelloResult{Protocol: 1, ChannelID: "c_1", Nonce: "n_1"}, nil)
		serve(p)
	}()
	c, err := greet(t.Context(), ours, Options{Program: "test", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); theirs.Close(); <-done })
	return c
}

// open opens a session on a broker that answers the rest with answer.
func open(t *testing.T, serve func(*peer)) (*Conn, *Session) {
	t.Helper()
	c := connect(t, func(p *peer) {
		a, err := p.next()
		if err != nil {
			return
		}
		p.reply(a, SessionResult{SessionID: "s_1", State: "active"}, nil)
		serve(p)
	})
	s, err := c.OpenSession(t.Context(), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestHelloSaysWhoDials(t *testing.T) {
	ours, theirs := pair(t)
	frames := wire.NewFrameReader(theirs)
	go func() {
		p := &peer{t: t, c: theirs, frames: frames}
		a, err := p.next()
		if err != nil {
			return
		}
		var h wire.Hello
		if bad := wire.DecodeParams(a.params, &h); bad != nil || h.Program != "p" || h.Version != "v" || h.Role != RoleNative || h.Labels["a"] != "b" || h.ProtocolMax != wire.ProtocolMax {
			t.Errorf("hello: %v %+v", bad, h)
		}
		p.reply(a, HelloResult{ChannelID: "c_9"}, nil)
	}()
	c, err := greet(t.Context(), ours, Options{Program: "p", Version: "v", Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.ChannelID() != "c_9" || c.Hello().ChannelID != "c_9" {
		t.Errorf("hello result: %+v", c.Hello())
	}
}

func TestHelloRefusedIsAnError(t *testing.T) {
	ours, theirs := pair(t)
	go func() {
		p := &peer{t: t, c: theirs, frames: wire.NewFrameReader(theirs)}
		if a, err := p.next(); err == nil {
			p.reply(a, nil, wire.NewError(wire.CodeProtocolUnsupported))
		}
	}()
	_, err := greet(t.Context(), ours, Options{})
	if !errors.Is(err, &Error{Code: wire.CodeProtocolUnsupported}) {
		t.Errorf("got %v", err)
	}
	if _, err := ours.Write([]byte("x")); err == nil {
		t.Error("the channel was left open")
	}
}

func TestDialWithoutBroker(t *testing.T) {
	_, err := DialHome(t.Context(), t.TempDir()+"/none", Options{})
	var down *endpoint.UnavailableError
	if !errors.As(err, &down) || down.Cause != endpoint.NotRunning {
		t.Errorf("got %v", err)
	}
}

// Numbers reach the broker in order, whoever asks and whichever reply comes
// first.
func TestSequenceIsOrderOnTheSocket(t *testing.T) {
	const calls = 200
	var asked []ask
	collected := make(chan struct{})
	_, s := open(t, func(p *peer) {
		for range calls {
			a, err := p.next()
			if err != nil {
				t.Errorf("reading: %v", err)
				break
			}
			asked = append(asked, a)
		}
		close(collected)
		for i := len(asked) - 1; i >= 0; i-- { // the last is answered first
			var e struct {
				Sequence    int64  `json:"sequence"`
				OperationID string `json:"operation_id"`
			}
			if err := json.Unmarshal(asked[i].params, &e); err != nil {
				t.Errorf("reading: %v", err)
			}
			p.reply(asked[i], map[string]any{"operation_id": e.OperationID, "sequence": e.Sequence, "state": "executing"}, nil)
		}
	})
	var wg sync.WaitGroup
	for i := range calls {
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := fmt.Sprintf("o_%d", i)
			op, err := s.Get(t.Context(), id, 0)
			if err != nil || op.OperationID != id || op.State != Executing {
				t.Errorf("%s: %+v %v", id, op, err)
			}
		}()
	}
	wg.Wait()
	<-collected
	for i, a := range asked {
		var e struct {
			Sequence int64 `json:"sequence"`
		}
		if err := json.Unmarshal(a.params, &e); err != nil || e.Sequence != int64(i+1) {
			t.Fatalf("request %d has number %d", i+1, e.Sequence)
		}
	}
}

func TestOversizedRequestUsesNoNumber(t *testing.T) {
	_, s := open(t, func(p *peer) {
		if a, err := p.next(); err == nil {
			var e wire.Envelope
			if bad := wire.DecodeParams(a.params, &e); bad != nil || e.Sequence != 1 {
				t.Errorf("number %d %v", e.Sequence, bad)
			}
			p.reply(a, AccessListResult{}, nil)
		}
	})
	body := strings.Repeat("x", wire.MaxFrame)
	if _, err := s.Do(t.Context(), "http:a", Action{Body: &body}, "", 0); !errors.Is(err, wire.ErrFrameTooLarge) {
		t.Errorf("got %v", err)
	}
	if _, err := s.ListAccess(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestResultStaysRaw(t *testing.T) {
	_, s := open(t, func(p *peer) {
		if a, err := p.next(); err == nil {
			p.reply(a, wire.OperationResult{OperationID: "o_1", State: string(Completed), Result: HTTPResult{Status: 200, BodyRef: "activity:1"}}, nil)
		}
	})
	op, err := s.Do(t.Context(), "http:a", Action{}, "key", 0)
	var r HTTPResult
	if err != nil || json.Unmarshal(op.Result, &r) != nil || r.BodyRef != "activity:1" || op.State != Completed {
		t.Errorf("%+v %v", op, err)
	}
}

func TestRefusalIsAnError(t *testing.T) {
	c, s := open(t, func(p *peer) {
		for {
			a, err := p.next()
			if err != nil {
				return
			}
			p.reply(a, nil, wire.NewError(wire.CodeSessionEnded).With("end_reason", "idle"))
		}
	})
	_, err := s.Wait(t.Context(), 0)
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != wire.CodeSessionEnded || refused.Data["end_reason"] != "idle" || refused.NextStep == "" {
		t.Errorf("got %v", err)
	}
	if c.Err() != nil {
		t.Errorf("a refusal ended the channel: %v", c.Err())
	}
}

func TestEndOfTheChannelEndsEveryCall(t *testing.T) {
	arrived := make(chan *peer, 1)
	c, s := open(t, func(p *peer) {
		for range 3 {
			if _, err := p.next(); err != nil {
				t.Errorf("reading: %v", err)
			}
		}
		arrived <- p
	})
	errs := make(chan error, 3)
	for range 3 {
		go func() { _, err := s.ListAccess(context.Background()); errs <- err }()
	}
	(<-arrived).c.Close()
	for range 3 {
		select {
		case err := <-errs:
			var closed *ClosedError
			if !errors.As(err, &closed) || !closed.Sent {
				t.Errorf("got %v", err)
			}
		case <-time.After(patience):
			t.Fatal("a call waits for a dead channel")
		}
	}
	<-c.Done()
	_, err := s.ListAccess(t.Context())
	var closed *ClosedError
	if !errors.As(err, &closed) || closed.Sent {
		t.Errorf("a call after the end: %v", err)
	}
}

func TestErrorAboutNoRequestEndsTheChannel(t *testing.T) {
	c := connect(t, func(p *peer) { p.reply(ask{}, nil, wire.NewError(wire.CodeAttributionFailed)) })
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the channel lives on")
	}
	if !errors.Is(c.Err(), &Error{Code: wire.CodeAttributionFailed}) {
		t.Errorf("got %v", c.Err())
	}
}

func TestNonsenseFromTheBrokerEndsTheChannel(t *testing.T) {
	for _, line := range []string{"nonsense\n", `{"jsonrpc":"2.0","id":2}` + "\n", strings.Repeat("x", wire.MaxFrame+2)} {
		c := connect(t, func(p *peer) { io.WriteString(p.c, line) })
		select {
		case <-c.Done():
		case <-time.After(patience):
			t.Fatalf("the channel lives on after %.20q", line)
		}
	}
}

func TestCancelGivesUpWaitingOnly(t *testing.T) {
	got := make(chan ask, 1)
	_, s := open(t, func(p *peer) {
		first, err := p.next()
		if err != nil {
			return
		}
		got <- first
		second, err := p.next()
		if err != nil {
			return
		}
		p.reply(first, AccessListResult{}, nil) // nobody waits for it any more
		p.reply(second, AccessListResult{Capabilities: []Access{{Capability: "http:a"}}}, nil)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-got; cancel() }()
	if _, err := s.ListAccess(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r, err := s.ListAccess(t.Context())
	if err != nil || len(r.Capabilities) != 1 {
		t.Errorf("the next call: %+v %v", r, err)
	}
	if _, err := s.ListAccess(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a dead context: %v", err)
	}
}

func TestSilenceAndStrangersAreUnavailable(t *testing.T) {
	loc := endpoint.Location{Socket: "/s"}
	for _, c := range []struct {
		err  error
		want Cause
	}{
		{fmt.Errorf("greeting the broker: %w", context.DeadlineExceeded), NotAnswering},
		{&ClosedError{Sent: true, Cause: fmt.Errorf("reading: %w", endpoint.ErrSender)}, Imposter},
	} {
		var down *UnavailableError
		if err := silent(loc, c.err); !errors.As(err, &down) || down.Cause != c.want || down.Socket != "/s" || !errors.Is(err, c.err) {
			t.Errorf("%v: %v, want %s", c.err, err, c.want)
		}
	}
	refused := wire.NewError(wire.CodeProtocolUnsupported)
	if err := silent(loc, refused); err != error(refused) {
		t.Errorf("a refusal became %v", err)
	}
}

func TestPassedDescriptorRidesOnSessionOpen(t *testing.T) {
	ours, theirs := pair(t)
	stdio, _ := os.Open(os.DevNull)
	defer stdio.Close()
	files := make(chan int, 2)
	go func() {
		b, oob := make([]byte, 1<<16), make([]byte, 128)
		for _, result := range []any{HelloResult{Nonce: "n"}, SessionResult{SessionID: "s"}} {
			n, oobn, _, _, err := theirs.ReadMsgUnix(b, oob)
			if err != nil {
				return
			}
			count := 0
			messages, _ := syscall.ParseSocketControlMessage(oob[:oobn])
			for _, m := range messages {
				if fds, err := syscall.ParseUnixRights(&m); err == nil {
					count += len(fds)
					for _, fd := range fds {
						syscall.Close(fd)
					}
				}
			}
			files <- count
			req, _ := wire.DecodeRequest(bytes.TrimSuffix(b[:n], []byte("\n")))
			out, _ := wire.Reply{ID: req.ID, Result: result}.Encode()
			theirs.Write(out)
		}
	}()
	c, err := greet(t.Context(), ours, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.OpenSessionPassing(t.Context(), stdio, nil, ""); err != nil {
		t.Fatal(err)
	}
	if hello, open := <-files, <-files; hello != 0 || open != 1 {
		t.Errorf("hello carries %d descriptors, session.open %d", hello, open)
	}
}
