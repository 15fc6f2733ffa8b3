package shim

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxCalls bounds the tool calls in flight, maxRequests everything.
	maxCalls    = 64
	maxRequests = 512

	modernProtocol = "2026-07-28"
)

// gate decides which messages reach the SDK. It follows the handshake: before
// 2026-07-28 an agent says initialize and, when it has read the answer,
// notifications/initialized; since then every request carries its protocol
// version and there is no handshake. No tool is called before that, and none
// by a line whose writer the kernel did not name.
type gate struct {
	mu          sync.Mutex
	initialize  bool
	initialized bool
	closed      *refusal // every call gets this when set
	calls       int
	inFlight    map[string]string // raw id → method
	writing     int               // answers on their way
	idle        chan struct{}     // not nil while draining
}

func newGate() *gate { return &gate{inFlight: map[string]string{}} }

// admit returns nil when the message may pass, and then counts it until
// answering is called.
func (g *gate) admit(m message, attributed bool) *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.id == nil {
		g.noteLocked(m)
		return nil
	}
	if r := g.judgeLocked(m, attributed); r != nil {
		return r
	}
	g.inFlight[string(m.id)] = m.method
	switch m.method {
	case "tools/call":
		g.calls++
	case "initialize":
		g.initialize = true
	}
	return nil
}

func (g *gate) noteLocked(m message) {
	if m.method == "notifications/initialized" && g.initialize {
		g.initialized = true
	}
}

func (g *gate) judgeLocked(m message, attributed bool) *refusal {
	if _, twice := g.inFlight[string(m.id)]; twice {
		return invalid(nil, "the id of this %s belongs to a request that is not answered yet", quoteShort(m.method))
	}
	if len(g.inFlight) >= maxRequests || (m.method == "tools/call" && g.calls >= maxCalls) {
		return &refusal{id: m.id, code: codeServer, name: "busy",
			message: "too many requests are waiting for an answer", nextStep: "Wait for answers before asking more."}
	}
	switch m.method {
	case "initialize", "ping", "server/discover":
		return nil
	}
	if g.closed != nil {
		r := *g.closed
		r.id = m.id
		return &r
	}
	if m.method != "tools/list" && !attributed {
		return &refusal{id: m.id, code: codeServer, name: "attribution_failed",
			message:  "the kernel did not say which process wrote this line; it was written before yett-mcp could look",
			nextStep: "Send it again: only the first lines after the start are affected."}
	}
	switch {
	case g.initialized, !g.initialize && modern(m.params):
		return nil
	case !g.initialize:
		return invalid(m.id, "%s before initialize", quoteShort(m.method))
	case m.method == "tools/call":
		return invalid(m.id, "tools/call before notifications/initialized: send it when you have read the answer to initialize")
	}
	return nil
}

// answering takes a request out of the count before its answer is written:
// whoever reads the answer may use the id again at once. done is called when
// the answer is written.
func (g *gate) answering(id json.RawMessage) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if method, ok := g.inFlight[string(id)]; ok {
		delete(g.inFlight, string(id))
		if method == "tools/call" {
			g.calls--
		}
	}
	g.writing++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.writing--
		if g.idle != nil && g.restLocked() {
			close(g.idle)
			g.idle = nil
		}
	}
}

func (g *gate) restLocked() bool { return len(g.inFlight) == 0 && g.writing == 0 }

// drained returns a channel that is closed when nothing is in flight.
func (g *gate) drained() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	if g.restLocked() {
		close(c)
	} else {
		g.idle = c
	}
	return c
}

// close refuses every later call with r.
func (g *gate) close(r *refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = r
}

// modern reports whether a request follows protocol 2026-07-28 or later: the
// version stands in its _meta. The SDK judges the version itself.
func modern(params json.RawMessage) bool {
	var p, meta map[string]json.RawMessage
	var version string
	return params != nil && json.Unmarshal(params, &p) == nil &&
		json.Unmarshal(p["_meta"], &meta) == nil &&
		json.Unmarshal(meta[mcp.MetaKeyProtocolVersion], &version) == nil &&
		version >= modernProtocol
}
