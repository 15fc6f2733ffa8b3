package httpexec

import (
	"io"

	"github.com/yett-broker/yett/internal/bulk"
)

// window is how much of a body is looked at in one piece, unless the secrets are
// so long that an echo may be longer.
const window = 32 << 10

// stream scrubs a body on its way from one place to another, so that it need
// not lie in memory as a whole.
type stream struct {
	s    *scrubber
	out  io.Writer
	bulk bulk.Stream // counts what came as it was decoded

	buf     []byte // read and not handed on yet
	base    int64  // bytes of the body before buf
	search  int    // echoes that begin before buf[search] were found already
	covered int    // up to here a mark that was handed on stands for buf

	readErr, writeErr error // the first ones; the end of the body is none
}

// copy hands on at most limit bytes of what r gives, scrubbed, and reports
// whether that is all of it. An echo that begins before the limit is read to
// its end, so that none is cut in half. inspect sees the beginning first, and
// whether it is everything; nothing is handed on if it objects.
func (st *stream) copy(r io.Reader, limit int64, inspect func(begin []byte, all bool) (objects bool)) (whole bool) {
	defer func() { clear(st.buf[:cap(st.buf)]) }()
	ahead := st.s.lookahead()
	size := max(window, 2*ahead)
	for first := true; ; first = false {
		had := len(st.buf)
		ended := st.fill(r, size, limit+int64(ahead))
		st.bulk.Came(len(st.buf) - had)
		over := st.base+int64(len(st.buf)) > limit
		if first && inspect(st.buf, ended && st.readErr == nil) {
			return false
		}
		if !ended {
			st.hand(len(st.buf)-ahead, false, false)
		} else {
			cut := min(int64(len(st.buf)), limit-st.base)
			st.hand(int(cut), over || st.readErr != nil, true)
		}
		if ended || st.writeErr != nil {
			return st.writeErr == nil && st.readErr == nil && !over
		}
	}
}

// fill reads until buf has size bytes, limit bytes of the body were read, or it
// ended. What a grown buffer leaves behind is wiped: it is not scrubbed yet.
func (st *stream) fill(r io.Reader, size int, limit int64) (ended bool) {
	for {
		room := min(int64(size), limit-st.base)
		if int64(len(st.buf)) >= room {
			return room < int64(size)
		}
		if len(st.buf) == cap(st.buf) {
			grown := make([]byte, len(st.buf), min(max(2*cap(st.buf), 2048), size))
			copy(grown, st.buf)
			clear(st.buf)
			st.buf = grown
		}
		n, err := r.Read(st.buf[len(st.buf):min(int64(cap(st.buf)), room)])
		st.buf = st.buf[:len(st.buf)+n]
		if err == io.EOF {
			return true
		}
		if err != nil {
			st.readErr = err
			return true
		}
	}
}

// hand looks for echoes that begin before buf[cut] and hands on what lies
// before them and between them. Of what has been searched the last byte stays
// back, unless this is the end: it belongs to an echo in base64 that begins
// after it.
func (st *stream) hand(cut int, broken, end bool) {
	keep := cut
	if !end {
		keep--
	}
	at := st.covered
	for _, f := range st.s.find(st.buf, st.search, cut, broken) {
		if f.from >= at {
			st.write(st.buf[at:f.from])
			st.write([]byte(mark))
			st.s.count++
		}
		at = max(at, f.to)
	}
	if at < keep {
		st.write(st.buf[at:keep])
	}
	st.covered = max(at-keep, 0)
	st.search = cut - keep
	st.base += int64(keep)
	rest := copy(st.buf, st.buf[keep:])
	clear(st.buf[rest:])
	st.buf = st.buf[:rest]
}

func (st *stream) write(p []byte) {
	if st.writeErr == nil && len(p) > 0 {
		_, st.writeErr = st.out.Write(p)
	}
}
