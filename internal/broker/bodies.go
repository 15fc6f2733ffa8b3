package broker

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// keeping is a body on its way to where it is kept. That it cannot be kept takes
// nothing from the action: its result then says so instead of naming a body.
type keeping struct {
	w   *bodies.Writer // nil: it could not be begun
	err error
	ref string
}

// keep begins a body of an operation that has its intent.
func (b *Broker) keep(op *operation, stream string) *keeping {
	name := bodies.Name{Row: op.intentRow(), Session: op.session.ID, Stream: stream}
	k := &keeping{ref: bodyRef(name)}
	k.w, k.err = b.Bodies.Create(name)
	return k
}

func (k *keeping) Write(p []byte) (int, error) {
	if k.err != nil {
		return 0, k.err
	}
	n, err := k.w.Write(p)
	k.err = err
	return n, err
}

// end makes the body readable, and returns its reference and size. Where that
// is not possible there is no reference, and notKept says why.
func (k *keeping) end() (ref string, size int64, notKept string) {
	if k.w == nil {
		return "", 0, notKeptFor(k.err)
	}
	if err := k.w.Commit(); err != nil {
		return "", k.w.Size(), notKeptFor(err)
	}
	return k.ref, k.w.Size(), ""
}

func (k *keeping) drop() {
	if k.w != nil {
		k.w.Abort()
	}
}

// keepAll keeps a body that lies in memory.
func (b *Broker) keepAll(op *operation, stream string, body []byte) (ref, notKept string) {
	k := b.keep(op, stream)
	k.Write(body) // end has its error
	ref, _, notKept = k.end()
	return ref, notKept
}

// notKeptFor words why a body is not there. The action itself is done.
func notKeptFor(err error) string {
	switch {
	case errors.Is(err, bodies.ErrNoRoom):
		return "there is no room on the broker's disk"
	case errors.Is(err, bodies.ErrLocked):
		return "Yett was locked meanwhile"
	}
	return "the broker could not write it"
}

// bodyRef is 'activity:N' for a body, and 'activity:N/stderr' and the like for
// the other streams.
func bodyRef(n bodies.Name) string {
	if n.Stream == bodies.Body {
		return activityRef(n.Row)
	}
	return activityRef(n.Row) + "/" + n.Stream
}

// bodyNamed is the body that a reference means in one session: there is no way
// to name another session's.
func bodyNamed(ref, session string) (bodies.Name, bool) {
	text, stream, other := strings.Cut(ref, "/")
	if !other {
		stream = bodies.Body
	}
	number, ok := strings.CutPrefix(text, "activity:")
	row, err := strconv.ParseInt(number, 10, 64)
	n := bodies.Name{Row: row, Session: session, Stream: stream}
	return n, ok && err == nil && slices.Contains(bodies.Streams(), stream) && bodyRef(n) == ref
}

// readBody reads a piece of a body of this session.
func (ch *channel) readBody(s *session.Session, m wire.OperationBody) (any, *wire.Error) {
	search, fail := newSearch(m)
	if fail != nil {
		return nil, fail
	}
	name, ok := bodyNamed(m.BodyRef, s.ID)
	if !ok {
		return nil, noBody()
	}
	r, fail := ch.b.openBody(name)
	if fail != nil {
		return nil, fail
	}
	defer r.Close()
	if search != nil {
		return ch.b.search(r, search)
	}
	return ch.b.piece(r, m.Offset, m.Limit)
}

func checkPiece(offset, limit int64) *wire.Error {
	if offset < 0 || limit < 1 || limit > wire.MaxBodyChunk {
		return wire.Errorf(wire.CodeBadRequest, "offset must not be negative, limit must lie between 1 and %d.", wire.MaxBodyChunk)
	}
	return nil
}

func noBody() *wire.Error {
	return wire.Errorf(wire.CodeBadRequest, "There is no such body in this session, or it is kept no longer.").
		Then("Give the body_ref, stdout_ref or stderr_ref of a result of this session.")
}

func (b *Broker) openBody(name bodies.Name) (*bodies.Reader, *wire.Error) {
	r, err := b.Bodies.Open(name)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, bodies.ErrGone):
		return nil, noBody()
	case errors.Is(err, bodies.ErrLocked):
		return nil, wire.NewError(wire.CodeLocked)
	}
	return nil, b.bodyUnreadable(err)
}

func (b *Broker) bodyUnreadable(err error) *wire.Error {
	b.Log.Error("reading a body", "error", err)
	return wire.Errorf(wire.CodeInternal, "The body cannot be read any more.").
		Then("The action itself is done; its file was damaged, or its disk is. Ask for the document again if that is harmless.")
}

func (b *Broker) piece(r *bodies.Reader, offset, limit int64) (any, *wire.Error) {
	size := r.Size()
	from := min(offset, size)
	out := make([]byte, min(limit, size-from))
	if _, err := r.ReadAt(out, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, b.bodyUnreadable(err)
	}
	return wire.OperationBodyResult{BytesBase64: out, Size: size, EOF: from+int64(len(out)) == size}, nil
}

// unlockBodies gives the store its key, which the vault derives.
func (b *Broker) unlockBodies() error {
	key, err := b.Vault.Subkey("bodies v1")
	if err != nil {
		return err
	}
	defer clear(key)
	b.Bodies.Unlock(key)
	return nil
}
