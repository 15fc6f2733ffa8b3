package broker

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/wire"
)

// searchesAtOnce leaves a processor to what is short.
var searchesAtOnce = min(2, max(1, runtime.GOMAXPROCS(0)-1))

const (
	searchTime = 5 * time.Second
	// defaultMatches are enough where nobody says how many.
	defaultMatches = 100
)

// search is one of the two ways to look for something in a body.
type search struct {
	grep   *bodies.Grep
	json   bodies.Pointer
	offset int64
	limit  int
}

// newSearch is the search that a request asks for, or nil for a mere piece.
func newSearch(m wire.OperationBody) (*search, *wire.Error) {
	if fail := checkPiece(m.Offset, m.Limit); fail != nil {
		return nil, fail
	}
	switch {
	case m.Grep == nil && (m.Context != nil || m.Matches != nil):
		return nil, wire.Errorf(wire.CodeBadRequest, "context and matches belong to grep.")
	case m.Grep == nil && m.JSON == nil:
		return nil, nil
	case m.Grep != nil && m.JSON != nil:
		return nil, wire.Errorf(wire.CodeBadRequest, "grep and json are two searches: give one of them.")
	case m.Limit < bodies.MinShown:
		return nil, wire.Errorf(wire.CodeBadRequest, "limit must be at least %d for a search.", bodies.MinShown)
	}
	s := &search{offset: m.Offset, limit: int(m.Limit)}
	if m.JSON != nil {
		if m.Offset != 0 {
			return nil, wire.Errorf(wire.CodeBadRequest, "json reads the whole body: its offset is 0.")
		}
		p, err := bodies.ParsePointer(*m.JSON)
		if err != nil {
			return nil, wire.Errorf(wire.CodeBadRequest, "json: %v.", err)
		}
		s.json = p
		return s, nil
	}
	s.grep = &bodies.Grep{Pattern: *m.Grep, Max: defaultMatches}
	if m.Context != nil {
		s.grep.Context = *m.Context
	}
	if m.Matches != nil {
		s.grep.Max = *m.Matches
	}
	if s.grep.Context < 0 || s.grep.Context > bodies.MaxContext || s.grep.Max < 1 || s.grep.Max > bodies.MaxMatches {
		return nil, wire.Errorf(wire.CodeBadRequest, "context must lie between 0 and %d, matches between 1 and %d.", bodies.MaxContext, bodies.MaxMatches)
	}
	return s, nil
}

// search looks through a body, for a bounded time and with few others.
func (b *Broker) search(r *bodies.Reader, s *search) (any, *wire.Error) {
	ctx, cancel := context.WithTimeout(context.Background(), searchTime)
	defer cancel()
	select {
	case b.searches <- struct{}{}:
		defer func() { <-b.searches }()
	case <-ctx.Done():
		return nil, wire.NewError(wire.CodeBusy)
	}
	var found bodies.Found
	var err error
	if s.grep != nil {
		found, err = s.grep.Search(ctx, r, s.offset, s.limit)
	} else {
		found, err = s.json.Select(ctx, r, s.limit)
	}
	var cannot *bodies.SearchError
	switch {
	case errors.As(err, &cannot):
		return nil, wire.Errorf(wire.CodeBadRequest, "The body cannot be searched: %v.", err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, wire.Errorf(wire.CodeBusy, "The search took longer than %v; read the body in pieces.", searchTime)
	case err != nil:
		return nil, b.bodyUnreadable(err)
	}
	result := wire.OperationBodyResult{BytesBase64: found.Text, Size: r.Size(), EOF: found.Complete, Matches: &found.Matches}
	if result.BytesBase64 == nil {
		result.BytesBase64 = []byte{}
	}
	if s.grep != nil && !found.Complete {
		result.NextOffset = &found.Next
	}
	return result, nil
}

// showBody shows a piece of any body to the person, who has just given a proof.
// That it was read is a row.
func (o *operator) showBody(r wire.OperationShowBody) (any, *wire.Error) {
	if o.b.state() == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	if !o.mayRead() {
		return nil, wire.NewError(wire.CodeProofRequired)
	}
	if fail := checkPiece(r.Offset, r.Limit); fail != nil {
		return nil, fail
	}
	op, ok, err := o.b.findOperation(r.OperationID)
	if err != nil {
		return nil, o.b.ledgerFailed(err)
	}
	if !ok || op.Intent == 0 {
		return nil, noOperation()
	}
	body, err := o.b.Bodies.Open(bodies.Name{Row: op.Intent, Session: op.Session, Stream: r.Stream})
	if errors.Is(err, bodies.ErrGone) {
		fail := wire.Errorf(wire.CodeBadRequest, "There is no such body, or it is kept no longer.")
		fail.NextStep = "What came of it stands in: yett operation show " + clip(r.OperationID) + "."
		return nil, fail
	}
	if err != nil {
		return nil, o.b.bodyUnreadable(err)
	}
	defer body.Close()
	if fail := o.readsBody(r); fail != nil {
		return nil, fail
	}
	return o.b.piece(body, r.Offset, r.Limit)
}

// readsBody makes the row that says that a body was read: one for all of its
// pieces, wherever the first of them begins.
func (o *operator) readsBody(r wire.OperationShowBody) *wire.Error {
	o.showing.Lock()
	defer o.showing.Unlock()
	body := r.OperationID + " " + r.Stream
	if o.shown == body && r.Offset > 0 {
		return nil
	}
	if fail := o.row("body.read", map[string]any{"operation_id": clip(r.OperationID), "stream": clip(r.Stream)}, nil); fail != nil {
		return fail
	}
	o.shown = body
	return nil
}
