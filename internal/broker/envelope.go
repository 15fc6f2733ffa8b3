package broker

import (
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// judge judges the envelope of a session-scoped request in the order that the
// protocol fixes: unknown, ended, wrong channel, sequence, locked, bad request,
// pending. It runs in the order of arrival and consumes the number.
func (ch *channel) judge(req wire.Request) (func() (any, *wire.Error), *wire.Error) {
	switch req.Method {
	case wire.MethodSessionWait:
		return judged(ch, req, func(m wire.SessionWait) (wire.Envelope, int64) {
			return wire.Envelope{SessionID: m.SessionID, Sequence: m.Sequence}, m.WaitMS
		}, ch.waitSession)
	case wire.MethodSessionClose:
		return judged(ch, req, func(m wire.Envelope) (wire.Envelope, int64) { return m, 0 }, ch.closeSession)
	case wire.MethodAccessRequest:
		return judged(ch, req, func(m wire.AccessRequest) (wire.Envelope, int64) {
			return wire.Envelope{SessionID: m.SessionID, Sequence: m.Sequence}, m.WaitMS
		}, ch.requestAccess)
	case wire.MethodAccessList:
		return judged(ch, req, func(m wire.Envelope) (wire.Envelope, int64) { return m, 0 }, ch.listAccess)
	case wire.MethodActionRequest:
		return judged(ch, req, func(m wire.ActionRequest) (wire.Envelope, int64) {
			return wire.Envelope{SessionID: m.SessionID, Sequence: m.Sequence}, m.WaitMS
		}, ch.boundedAction)
	case wire.MethodOperationGet:
		return judged(ch, req, func(m wire.OperationGet) (wire.Envelope, int64) {
			return wire.Envelope{SessionID: m.SessionID, Sequence: m.Sequence}, m.WaitMS
		}, ch.getOperation)
	default: // isSessionMethod leaves only this one
		return judged(ch, req, func(m wire.OperationBody) (wire.Envelope, int64) {
			return wire.Envelope{SessionID: m.SessionID, Sequence: m.Sequence}, 0
		}, ch.readBody)
	}
}

// judged decodes the parameters of one method, judges the envelope in them and
// returns the rest of the work.
func judged[M any](ch *channel, req wire.Request, envelope func(M) (wire.Envelope, int64),
	work func(*session.Session, M) (any, *wire.Error)) (func() (any, *wire.Error), *wire.Error) {
	var m M
	malformed := req.Decode(&m)
	if malformed != nil && malformed.Closes() {
		return nil, malformed
	}
	env, wait := envelope(m)
	if env.SessionID == "" && malformed != nil {
		return nil, malformed
	}
	s, fail := ch.judgeSession(env, malformed)
	if fail != nil {
		return nil, fail
	}
	if malformed != nil {
		return nil, malformed
	}
	if wait < 0 || wait > wire.MaxWaitMS {
		return nil, wire.Errorf(wire.CodeBadRequest, "wait_ms must lie between 0 and %d.", wire.MaxWaitMS)
	}
	if req.Method == wire.MethodActionRequest || req.Method == wire.MethodAccessRequest {
		if s.State() == session.Pending {
			return nil, wire.NewError(wire.CodeSessionPending)
		}
	}
	return func() (any, *wire.Error) {
		if fail := ch.recheck(); fail != nil {
			return nil, fail
		}
		return work(s, m)
	}, nil
}

// judgeSession finds the session and consumes the sequence number. A number
// that is missing or not a number consumes nothing and is a bad request.
func (ch *channel) judgeSession(env wire.Envelope, malformed *wire.Error) (*session.Session, *wire.Error) {
	s, ok := ch.b.sessions.Get(env.SessionID)
	if !ok {
		return nil, wire.NewError(wire.CodeSessionUnknown).With("claimed_session", clip(env.SessionID))
	}
	if why := s.Due(); why != "" {
		ch.b.endSession(s, why)
	}
	if why := s.EndReason(); why != "" {
		return nil, wire.NewError(wire.CodeSessionEnded).With("end_reason", why)
	}
	if s.ChannelID != ch.id.ID {
		return nil, wire.NewError(wire.CodeWrongChannel).With("claimed_session", env.SessionID)
	}
	if env.Sequence == 0 && malformed != nil {
		return nil, malformed
	}
	if !s.Consume(env.Sequence) {
		return nil, wire.NewError(wire.CodeSequenceInvalid)
	}
	if s.State() == session.Paused || ch.b.state() == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	return s, nil
}

// clip bounds a claimed id before it is recorded or echoed.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}
