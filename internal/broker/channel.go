package broker

import (
	"container/list"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	// helloTime is how long a connection may take to say hello.
	helloTime = 10 * time.Second
	// writeTime is how long a peer may take to read a reply.
	writeTime = 10 * time.Second
	// maxInFlight bounds the requests of one channel that wait for an answer.
	maxInFlight = 256
	// exitGrace is how long a process without a program may take to be dead:
	// the kernel gives back its memory in between.
	exitGrace = time.Second
)

// channel is one accepted connection, with the evidence that was taken for it.
type channel struct {
	*operator // what its process asks of management
	b         *Broker
	id        *session.Channel
	conn      *net.UnixConn
	peer      *peer.Process
	slot      chan struct{}  // bounds what is in flight
	requests  sync.WaitGroup // those in flight
	log       refusals

	share   *share // of its process; set before anything is read
	room    *room  // owned by shares, as is
	arrival *list.Element

	// of the session; set before it can be used
	verified, claimed json.RawMessage // parts of every row
	owner             string          // the subjectKey of its caller

	filing  sync.Mutex // held while an operation is queued for its card
	writing sync.Mutex
	hungUp  bool // nothing is written any more; under writing
	closing sync.Once
	closed  chan struct{}

	mu       sync.Mutex
	hello    *wire.Hello
	protocol int           // the version that hello chose
	agent    *peer.Process // the process that started the shim; nil for others
	caller   action.Caller // without digests until hashed is closed
	hashed   chan struct{}
	everyOp  bool // a guard is missing: each action gets its own card
	card     *approval.Item
	reason   *wire.Reason              // why there was no card
	repeats  map[string]*approval.Item // cards about equal unresolved actions, by digest
	purposes map[string]string         // what was said when a capability was asked for; "" is the session's
}

func (b *Broker) serveChannel(conn *net.UnixConn) {
	defer conn.Close()
	p, err := peer.Of(conn)
	if err == nil && p.Evidence().Kernel.UID != os.Getuid() {
		p.Close()
		err = fmt.Errorf("%w: a process of another account", peer.ErrNoAttribution)
	}
	if err != nil {
		b.refuseUnattributed(conn, err)
		return
	}
	ch := &channel{b: b, id: session.NewChannel(), conn: conn, peer: p, slot: make(chan struct{}, maxInFlight),
		closed: make(chan struct{}), hashed: make(chan struct{}), repeats: map[string]*approval.Item{}, purposes: map[string]string{}}
	ch.operator = newOperator(b, ch)
	defer p.Close()
	if !b.register(ch) {
		ch.reply(nil, nil, wire.Errorf(wire.CodeBusy, "There are too many channels of this process, or of all."))
		return
	}
	defer b.unregister(ch)
	var watching sync.WaitGroup
	watching.Go(ch.watchPeer)
	if refused := ch.read(); refused {
		ch.hangUp()
	} else {
		ch.answerLast()
	}
	ch.ended()
	watching.Wait()
	ch.requests.Wait()
	ch.mu.Lock()
	agent := ch.agent
	ch.mu.Unlock()
	if agent != nil {
		agent.Close()
	}
}

// refuseUnattributed answers a connection whose process cannot be established.
func (b *Broker) refuseUnattributed(conn *net.UnixConn, cause error) {
	b.recordRefusal("", "", wire.CodeAttributionFailed, map[string]any{"cause": cause.Error()})
	conn.SetDeadline(time.Now().Add(time.Second))
	var id json.RawMessage
	if frame, err := wire.NewFrameReader(conn).Next(); err == nil {
		if req, err := wire.DecodeRequest(frame); err == nil {
			id = req.ID
		}
	}
	if out, err := (wire.Reply{ID: id, Error: wire.NewError(wire.CodeAttributionFailed)}).Encode(); err == nil {
		conn.Write(out)
	}
}

// read is the frame loop. Frames are judged in the order of their arrival. It
// reports whether the channel was refused for what came on it, and not ended by
// the peer.
func (ch *channel) read() (refused bool) {
	ch.conn.SetReadDeadline(time.Now().Add(helloTime))
	sender := peer.NewReader(ch.conn, ch.peer.PID())
	frames := wire.NewFrameReader(sender)
	for {
		frame, err := frames.Next()
		if err != nil {
			return ch.readFailed(err)
		}
		ch.keepPace()
		req, fail := wire.DecodeRequest(frame)
		if passed := sender.Descriptor(); passed != nil || req.Method == wire.MethodSessionOpen {
			if refused := ch.judgeStdio(req.Method, passed); refused != nil {
				fail = refused
			}
		}
		if fail == nil {
			fail = ch.receive(req, cost(req.Method, len(frame)))
		}
		if g := ch.greeting(); g != nil && g.Role == wire.RoleShim {
			sender.AcceptDescriptor() // one may come with session.open; with anything else judgeStdio ends it
		}
		if fail == nil {
			continue
		}
		ch.refuse(req.ID, fail)
		if fail.Closes() || ch.greeting() == nil {
			return true
		}
	}
}

func (ch *channel) readFailed(err error) (refused bool) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrUnexpectedEOF):
		return false
	case errors.Is(err, wire.ErrFrameTooLarge):
		ch.refuse(nil, wire.NewError(wire.CodeFrameTooLarge))
	case errors.Is(err, peer.ErrDescriptor):
		ch.endSession(session.EvidenceChanged)
		ch.refuse(nil, wire.Errorf(wire.CodeAttributionFailed, "A descriptor came with a message that has none; the channel is closed."))
	case errors.Is(err, peer.ErrSender):
		ch.endSession(session.EvidenceChanged)
		ch.refuse(nil, wire.Errorf(wire.CodeAttributionFailed, "Another process wrote into this channel; it is closed."))
	case isTimeout(err):
		ch.refuse(nil, wire.Errorf(wire.CodeProtocolError, "No hello came in time; the channel is closed."))
	}
	return true
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// greeting returns the hello of the channel, or nil before it.
func (ch *channel) greeting() *wire.Hello {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.hello
}

// receive takes one decoded request. What must keep its order is done before it
// returns; the rest goes on beside it, bounded by slot and by what it holds in
// bytes until it is answered.
func (ch *channel) receive(req wire.Request, holds int) *wire.Error {
	if req.Method == wire.MethodHello {
		return ch.receiveHello(req)
	}
	if ch.greeting() == nil {
		return wire.Errorf(wire.CodeProtocolError, "The first message must be hello.")
	}
	work, fail := ch.prepare(req)
	if fail != nil {
		return fail
	}
	select {
	case ch.slot <- struct{}{}:
	default:
		return wire.NewError(wire.CodeBusy)
	}
	if !ch.awaitRoom(holds) {
		<-ch.slot
		return wire.NewError(wire.CodeBusy)
	}
	ch.requests.Add(1)
	ch.b.workers.do(func() {
		defer ch.requests.Done()
		defer func() {
			ch.share.release(holds)
			<-ch.slot
		}()
		result, fail := ch.guarded(req.Method, work)
		if fail != nil {
			ch.refuse(req.ID, fail)
			return
		}
		ch.reply(req.ID, result, nil)
	})
	return nil
}

// guarded keeps a fault in one request from taking the broker down.
func (ch *channel) guarded(method string, work func() (any, *wire.Error)) (result any, fail *wire.Error) {
	defer func() {
		if p := recover(); p != nil {
			ch.b.logPanic(method, p)
			fail = wire.NewError(wire.CodeInternal)
		}
	}()
	return work()
}

// prepare judges the envelope of a request and returns the rest of the work.
func (ch *channel) prepare(req wire.Request) (func() (any, *wire.Error), *wire.Error) {
	if fail := ch.stableOnly(req.Method); fail != nil {
		return nil, fail
	}
	switch {
	case req.Method == wire.MethodSessionOpen:
		var m wire.SessionOpen
		err := req.Decode(&m)
		if err != nil && err.Closes() {
			return nil, err
		}
		return func() (any, *wire.Error) { return ch.openSession(m, err) }, nil
	case isSessionMethod(req.Method):
		return ch.judge(req)
	case isManagement(req.Method):
		var m wire.Managed
		if err := req.Decode(&m); err != nil {
			return nil, err
		}
		return func() (any, *wire.Error) { return ch.manage(req.Method, m) }, nil
	}
	return nil, wire.Errorf(wire.CodeBadRequest, "There is no such method.")
}

// recheck proves again that the same live program is there. A change ends
// session and channel.
func (ch *channel) recheck() *wire.Error {
	ch.mu.Lock()
	agent := ch.agent
	ch.mu.Unlock()
	why := ""
	if err := ch.peer.Recheck(); changed(ch.peer, err) {
		why = session.EvidenceChanged
	} else if err != nil {
		why = ch.endOfChannel()
	} else if agent != nil {
		if err := agent.Recheck(); changed(agent, err) {
			why = session.EvidenceChanged
		} else if err != nil {
			why = session.AgentExited
		}
	}
	if why == "" {
		return nil
	}
	ch.endSession(why)
	time.AfterFunc(10*time.Millisecond, ch.close) // after the answer has gone out
	return wire.NewError(wire.CodeSessionEnded).With("end_reason", why)
}

// changed reports whether err means that p lives on as something else. A
// process on its way out has no program any more a moment before it is dead:
// death wins here too.
func changed(p *peer.Process, err error) bool {
	if !errors.Is(err, peer.ErrChanged) {
		return false
	}
	if !errors.Is(err, fs.ErrNotExist) {
		err = p.Recheck() // what it showed may have gone between two looks
		if !errors.Is(err, peer.ErrGone) && !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	limit := time.NewTimer(exitGrace)
	defer limit.Stop()
	select {
	case <-p.Done():
		return false
	case <-limit.C:
		return true
	}
}

// reply writes one frame. A peer that does not read loses its channel, and
// nobody else waits for it.
func (ch *channel) reply(id json.RawMessage, result any, fail *wire.Error) {
	out, err := wire.Reply{ID: id, Result: result, Error: fail}.Encode()
	if err != nil {
		ch.b.Log.Error("encoding a reply", "error", err)
		out, _ = wire.Reply{ID: id, Error: wire.NewError(wire.CodeInternal)}.Encode()
	}
	if len(out) > wire.MaxFrame+1 {
		ch.b.Log.Error("a reply is longer than a message may be", "bytes", len(out))
		out, _ = wire.Reply{ID: id, Error: wire.NewError(wire.CodeInternal)}.Encode()
	}
	ch.writing.Lock()
	defer ch.writing.Unlock()
	if ch.hungUp {
		return
	}
	ch.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := ch.conn.Write(out); err != nil {
		ch.close()
	}
}

// refuse records a refusal and answers it.
func (ch *channel) refuse(id json.RawMessage, fail *wire.Error) {
	if now := ch.b.Clock.SinceBoot(); ch.log.allow(now, 20) && ch.share.refused.allow(now, refusedInASecond) {
		detail := map[string]any{"message": fail.Message}
		for k, v := range fail.Data {
			detail[k] = v
		}
		own := ""
		if s := ch.id.Session(); s != nil {
			own = s.ID
		}
		ch.b.recordRefusal(own, ch.id.ID, fail.Code, detail)
	}
	ch.reply(id, nil, fail)
}

func isSessionMethod(m string) bool {
	switch m {
	case wire.MethodSessionWait, wire.MethodSessionClose, wire.MethodAccessRequest, wire.MethodAccessList,
		wire.MethodActionRequest, wire.MethodOperationGet, wire.MethodOperationBody:
		return true
	}
	return false
}

func isManagement(m string) bool {
	area, _, _ := strings.Cut(m, ".")
	switch area {
	case "broker", "vault", "secret", "approval", "activity", "ledger", "passkey", "touchid", "host":
		return true
	}
	return m == wire.MethodSessionList || m == wire.MethodSessionPaused || m == wire.MethodSessionRevoke || m == wire.MethodAccessApply || m == wire.MethodAccessShow ||
		m == wire.MethodAccessText || m == wire.MethodAccessTest || m == wire.MethodOperationShow || m == wire.MethodOperationShowBody || m == wire.MethodOperationSettle
}
