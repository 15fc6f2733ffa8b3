package broker

import (
	"sync"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// maxBodies bounds the bytes of bodies that one session keeps. The oldest go
// first.
const maxBodies = 64 << 20

// bodies holds what a session may still read, in memory. They end with it.
type bodies struct {
	mu    sync.Mutex
	byRef map[string][]byte
	order []string
	size  int
	ended bool
}

func (s *bodies) put(ref string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // an answer that came after the session's end
		return
	}
	if s.byRef == nil {
		s.byRef = map[string][]byte{}
	}
	s.byRef[ref] = body
	s.order = append(s.order, ref)
	s.size += len(body)
	for s.size > maxBodies && len(s.order) > 1 {
		s.size -= len(s.byRef[s.order[0]])
		delete(s.byRef, s.order[0])
		s.order = s.order[1:]
	}
}

func (s *bodies) get(ref string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.byRef[ref]
	return b, ok
}

// end forgets all bodies for good.
func (s *bodies) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byRef, s.order, s.size, s.ended = nil, nil, 0, true
}

// readBody reads a piece of a body of this session.
func (ch *channel) readBody(_ *session.Session, m wire.OperationBody) (any, *wire.Error) {
	if m.Offset < 0 || m.Limit < 1 || m.Limit > wire.MaxBodyChunk {
		return nil, wire.Errorf(wire.CodeBadRequest, "offset must not be negative, limit must lie between 1 and %d.", wire.MaxBodyChunk)
	}
	body, ok := ch.refs.get(m.BodyRef)
	if !ok {
		fail := wire.Errorf(wire.CodeBadRequest, "There is no such body in this session, or it is kept no longer.")
		fail.NextStep = "Give the body_ref, stdout_ref or stderr_ref of a result of this session."
		return nil, fail
	}
	size := int64(len(body))
	from := min(m.Offset, size)
	to := min(from+m.Limit, size)
	return wire.OperationBodyResult{BytesBase64: append([]byte{}, body[from:to]...), Size: size, EOF: to == size}, nil
}
