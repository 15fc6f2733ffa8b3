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

// Negotiate returns the highest version in both ranges.
func Negotiate(min, max int) (int, *Error) {
	if min > max {
		return 0, Errorf(CodeBadRequest, "protocol_min %d is above protocol_max %d", min, max)
	}
	v := ProtocolMax
	if max < v {
		v = max
	}
	if v < min || v < ProtocolMin {
		side := "yett-mcp or the client"
		if min > ProtocolMax {
			side = "the broker (yett)"
		}
		e := Errorf(CodeProtocolUnsupported, "this broker speaks protocol %d to %d, the client %d to %d", ProtocolMin, ProtocolMax, min, max)
		e.NextStep = fmt.Sprintf("Update %s, then start it again.", side)
		return 0, e
	}
	return v, nil
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
