// Package wire is the language of the broker's socket: JSON-RPC 2.0
// (https://www.jsonrpc.org/specification), one message a line, UTF-8, at most
// MaxFrame bytes without the newline. docs/protocol.md is the reader's version
// of this package and docs/vectors holds what must come back for what is sent.
//
// A request is decoded once and strictly: unknown members, members that are
// equal under case folding, trailing data, invalid UTF-8 and deep nesting are
// refused before anything looks at the content, so that what is judged, shown,
// recorded and executed is the same parse. Replies may grow: a client ignores
// members that it does not know. CheckStrict gives the same strictness to lines
// that are no frames, such as those of an agent to the shim.
//
// The package trusts nobody and holds no state. It knows nothing of sockets;
// who wrote a frame is the concern of package peer.
package wire

import "fmt"

const (
	// MaxFrame is the longest message in bytes, its newline not counted.
	MaxFrame = 1 << 20
	// MaxDepth is the deepest nesting of arrays and objects in a request.
	MaxDepth = 32
	// MaxBodyChunk is the most bytes that operation.body returns at once.
	MaxBodyChunk = 512 << 10
	// MaxWaitMS bounds wait_ms: no call of an agent waits longer for a person.
	MaxWaitMS = 50_000
)

// The range of protocol versions that this release speaks.
const (
	ProtocolMin = 1
	ProtocolMax = 1
)

// ProtocolStable is the part that never changes, so that every yett can ask
// every broker for its status and end it: hello, broker.status and broker.stop
// in the shapes of docs/protocol.md. The command line falls back to it where
// the ranges do not meet; nobody can act or ask for access in it.
const ProtocolStable = 0

// Stable reports whether a method belongs to ProtocolStable. hello is judged
// before a version is chosen.
func Stable(method string) bool { return method == MethodBrokerStatus || method == MethodBrokerStop }

// Negotiate returns the highest version that both sides speak, for a client
// that says hello with this range and role.
func Negotiate(min, max int, role string) (int, *Error) {
	if min > max {
		return 0, Errorf(CodeBadRequest, "protocol_min %d is above protocol_max %d", min, max)
	}
	v := ProtocolMax
	if max < v {
		v = max
	}
	if v >= min && v >= ProtocolMin {
		return v, nil
	}
	if role == RoleCLI && min <= ProtocolStable && ProtocolStable <= max {
		return ProtocolStable, nil
	}
	return 0, unsupported(min, max, role)
}

// unsupported names the side to update. Both ranges stand in the data, for
// clients with words of their own.
func unsupported(min, max int, role string) *Error {
	e := Errorf(CodeProtocolUnsupported, "The broker speaks protocol %s, the client %s.", versions(ProtocolMin, ProtocolMax), versions(min, max))
	e.NextStep = OlderSide(min > ProtocolMax, role)
	return e.With("protocol_min", ProtocolMin).With("protocol_max", ProtocolMax)
}

// OlderSide is the next step where no version is common: what the person has to
// update and to start again.
func OlderSide(brokerIsOlder bool, role string) string {
	switch {
	case brokerIsOlder:
		return "Update and restart yett: install the newer release, then yett stop, then yett up."
	case role == RoleShim:
		return "Update yett-mcp, which comes with yett, then restart the agent."
	case role == RoleCLI:
		return "Update yett: run the one that the broker was started from."
	}
	return "Update the client, then start it again."
}

func versions(min, max int) string {
	if min == max {
		return fmt.Sprint(min)
	}
	return fmt.Sprintf("%d to %d", min, max)
}

// Methods of the agent's side.
const (
	MethodHello         = "hello"
	MethodSessionOpen   = "session.open"
	MethodSessionWait   = "session.wait"
	MethodSessionClose  = "session.close"
	MethodAccessRequest = "access.request"
	MethodAccessList    = "access.list"
	MethodActionRequest = "action.request"
	MethodOperationGet  = "operation.get"
	MethodOperationBody = "operation.body"
)
