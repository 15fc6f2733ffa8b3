package broker

import (
	"context"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/wire"
)

// hashTime bounds how long the opening of a session waits for digests.
const hashTime = 7 * time.Second

// receiveHello is the first message: versions first, then who is there. It
// works while locked. A failed hello closes the channel.
func (ch *channel) receiveHello(req wire.Request) *wire.Error {
	if ch.greeting() != nil {
		return wire.Errorf(wire.CodeProtocolError, "hello is said once.")
	}
	var m wire.Hello
	if err := req.Decode(&m); err != nil {
		return err
	}
	claims := len(m.Program) + len(m.Version)
	for name, value := range m.Labels {
		claims += len(name) + len(value)
	}
	if claims > maxClaims {
		return wire.Errorf(wire.CodeBadRequest, "program, version and labels are together longer than %d bytes", maxClaims)
	}
	version, fail := wire.Negotiate(m.ProtocolMin, m.ProtocolMax, m.Role)
	if fail != nil {
		return fail
	}
	agent, fail := ch.attribute(m)
	if fail != nil {
		return fail
	}
	ch.greet(m, version, agent)
	ch.conn.SetReadDeadline(time.Time{})
	if agent != nil {
		go ch.watchAgent(agent)
	}
	ch.reply(req.ID, wire.HelloResult{Protocol: version, BrokerVersion: ch.b.Version,
		BrokerInstance: ch.b.instance, ChannelID: ch.id.ID, Nonce: ch.id.Nonce}, nil)
	return nil
}

// stableOnly refuses what is no part of the stable protocol, on a channel that
// has nothing else in common with the broker.
func (ch *channel) stableOnly(method string) *wire.Error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.protocol != wire.ProtocolStable || wire.Stable(method) {
		return nil
	}
	return wire.Errorf(wire.CodeProtocolUnsupported, "This channel speaks no version of the broker's: it can ask for broker.status and broker.stop.")
}

// attribute judges the claimed role. Only a shim's parent is judged; a native
// client and the command line stand for themselves.
func (ch *channel) attribute(m wire.Hello) (*peer.Process, *wire.Error) {
	switch m.Role {
	case wire.RoleNative, wire.RoleCLI:
		return nil, nil
	case wire.RoleShim:
	default:
		return nil, wire.Errorf(wire.CodeBadRequest, "role must be shim, native or cli")
	}
	device, inode, err := ch.b.ShimFile()
	if err != nil {
		ch.b.Log.Error("looking for the installed yett-mcp", "error", err)
		return nil, wire.Errorf(wire.CodeAttributionFailed, "The installed yett-mcp was not found beside the broker.")
	}
	if !ch.peer.SameExecutable(device, inode) {
		return nil, wire.Errorf(wire.CodeAttributionFailed, "The process says it is yett-mcp but does not run the installed one.")
	}
	agent, err := ch.peer.Parent()
	if err != nil {
		ch.b.Log.Warn("a shim without an agent", "cause", err)
		return nil, wire.Errorf(wire.CodeAttributionFailed, "The process that started yett-mcp cannot be established.")
	}
	return agent, nil
}

func (ch *channel) greet(m wire.Hello, version int, agent *peer.Process) {
	c := action.Caller{Role: m.Role, Unit: action.UnitProcess, Peer: ch.peer.Evidence(),
		Claims: action.Claims{Program: m.Program, Version: m.Version, Labels: maps.Clone(m.Labels)}}
	if agent != nil {
		e := agent.Evidence()
		c.Agent = &e
	}
	guard, ok := m.Labels["guard"]
	everyOp := ok && agent != nil && strings.HasPrefix(guard, "none")
	if everyOp {
		c.Unit = action.UnitOperation
	}
	c.Words = words(c)
	ch.mu.Lock()
	ch.hello, ch.protocol, ch.agent, ch.caller, ch.everyOp = &m, version, agent, c, everyOp
	ch.mu.Unlock()
	go ch.hash(agent)
}

// words are the states that are no refusals but stand on the card.
func words(c action.Caller) []string {
	said := peer.Words(c.Subject())
	if c.Unit == action.UnitOperation {
		said = append(said, "no injection guard: each action is asked for")
	}
	return said
}

// judgeStdio judges the socket on which a shim says its agent speaks: the
// kernel must name the agent as the maker of the pair. The broker's copy is
// closed at once.
func (ch *channel) judgeStdio(method string, passed *os.File) *wire.Error {
	if passed != nil {
		defer passed.Close()
	}
	ch.mu.Lock()
	agent, onSocket := ch.agent, ch.hello != nil && ch.hello.Labels["stdio"] == "socket"
	ch.mu.Unlock()
	switch {
	case agent == nil && passed == nil, !onSocket && passed == nil:
		return nil
	case agent == nil, method != wire.MethodSessionOpen:
		return wire.Errorf(wire.CodeAttributionFailed, "A descriptor came with a message that has none.")
	case passed == nil:
		return wire.Errorf(wire.CodeAttributionFailed, "The shim did not show the socket that its agent speaks on.")
	}
	maker, err := peer.OfPair(passed)
	if err != nil {
		ch.b.Log.Warn("a shim's standard input", "cause", err)
		return wire.Errorf(wire.CodeAttributionFailed, "The process that made yett-mcp's standard input cannot be established.")
	}
	defer maker.Close()
	if !sameProcess(maker.Evidence().Kernel, agent.Evidence().Kernel) {
		return wire.Errorf(wire.CodeAttributionFailed, "yett-mcp was started by another process than the one that speaks to it.")
	}
	return nil
}

// sameProcess compares what cannot be equal for two processes of one boot.
func sameProcess(a, b action.KernelFacts) bool {
	return a.PID == b.PID && a.PidfsInode == b.PidfsInode && a.StartTicks == b.StartTicks
}

// hash digests the executables beside the conversation, never on the way of a
// request.
func (ch *channel) hash(agent *peer.Process) {
	defer close(ch.hashed)
	ctx, cancel := context.WithTimeout(context.Background(), hashTime)
	defer cancel()
	ch.peer.Hash(ctx)
	if agent != nil {
		agent.Hash(ctx)
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.caller.Peer = ch.peer.Evidence()
	if agent != nil {
		e := agent.Evidence()
		ch.caller.Agent = &e
	}
	ch.caller.Words = words(ch.caller) // that there is no digest is one of them
}

// evidence returns the caller with its digests, once they are there.
func (ch *channel) evidence() action.Caller {
	<-ch.hashed
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.caller
}
