package httpexec

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is HTTP/2 on one connection, one request at a time: several at once would
// save a handshake and cost what this package promises, that the end of one call
// can close its connection. Frames and the decoding of headers are
// golang.org/x/net's; headers are written by hand, as literals that no table
// keeps, since an encoder would keep a copy of the credential.
//
// One goroutine reads. A large body is written by another, which waits for the
// windows that the first one hears of.
type h2 struct {
	c  *conn
	fr *http2.Framer

	writing sync.Mutex // one frame at a time

	// Of the reader.
	pastSettings     bool
	owed, owedStream int // bytes that were taken since the windows were opened

	mu         sync.Mutex
	opened     *sync.Cond // a window has grown, or the end has come
	id         uint32     // of the present stream; changes between two requests only
	connection int64      // bytes that may be sent
	stream     int64
	initial    int64 // of a new stream
	maxFrame   int
	begun      bool // the preface has been sent
	ended      bool // no more is sent on this stream
	goneAway   bool // by GOAWAY
	refused    bool // the stream was reset
}

const (
	h2Window    = 1 << 20 // bytes that the other side may send ahead
	h2FrameSize = 16 << 10
	h2MaxID     = 1 << 30
)

var errHTTP2 = errors.New("the answer is not HTTP/2")

func newH2(c *conn) *h2 {
	h := &h2{c: c, fr: http2.NewFramer(nil, c.br), connection: 65535, initial: 65535, maxFrame: h2FrameSize, id: math.MaxUint32}
	h.opened = sync.NewCond(&h.mu)
	h.fr.SetMaxReadFrameSize(h2FrameSize)
	h.fr.SetReuseFrames()
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.fr.MaxHeaderListSize = maxHead
	return h
}

// reusable reports whether another request may go over the connection. It may
// be asked of a connection in HTTP/1.1.
func (h *h2) reusable() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.goneAway && !h.refused && h.id < h2MaxID
}

// send writes the request, a large body beside the reading.
func (h *h2) send(t Target, w *request) *outgoing {
	o := &outgoing{}
	h.mu.Lock()
	h.id += 2 // from -1: 1, 3, 5, …
	h.stream, h.ended, h.owedStream = h.initial, false, 0
	id, first := h.id, !h.begun
	h.begun = true
	atOnce := len(w.body) <= bodyInOneCall && int64(len(w.body)) <= min(h.stream, h.connection)
	if atOnce {
		h.stream -= int64(len(w.body))
		h.connection -= int64(len(w.body))
	}
	h.mu.Unlock()

	block := w.block(t)
	b := make([]byte, 0, len(http2.ClientPreface)+len(block)+len(w.body)+256+9*(len(block)/h2FrameSize+2))
	if first {
		b = appendPreface(b)
	}
	b = appendHeaders(b, id, block, len(w.body) == 0)
	if atOnce && len(w.body) > 0 {
		b = appendFrame(b, http2.FrameData, http2.FlagDataEndStream, id, w.body)
	}
	clear(block)
	o.n, o.err = h.write(b)
	clear(b)
	switch {
	case o.err == nil && atOnce:
		t.Sent()
	case o.err == nil:
		o.over = make(chan struct{})
		go func() {
			defer close(o.over)
			var n int
			n, o.err = h.sendBody(id, w.body)
			o.n += n
			if o.err == nil {
				t.Sent()
			}
		}()
	}
	return o
}

func (h *h2) write(b []byte) (int, error) {
	h.writing.Lock()
	defer h.writing.Unlock()
	return h.c.rw.Write(b)
}

// sendBody writes a body as far as the windows open.
func (h *h2) sendBody(id uint32, body []byte) (sent int, err error) {
	buf := make([]byte, 0, 9+h2FrameSize)
	for len(body) > 0 {
		n, err := h.window(len(body))
		if err != nil {
			return sent, err
		}
		var flags http2.Flags
		if n == len(body) {
			flags = http2.FlagDataEndStream
		}
		buf = appendFrame(buf[:0], http2.FrameData, flags, id, body[:n])
		if _, err := h.write(buf); err != nil {
			return sent, err
		}
		body, sent = body[n:], sent+n
	}
	return sent, nil
}

var errNotWanted = errors.New("the other side wanted no more of the request")

// window waits until some of want bytes may be sent.
func (h *h2) window(want int) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.ended && min(h.stream, h.connection) <= 0 {
		h.opened.Wait()
	}
	if h.ended {
		return 0, errNotWanted
	}
	n := int(min(int64(want), h.stream, h.connection, int64(min(h.maxFrame, h2FrameSize))))
	h.stream -= int64(n)
	h.connection -= int64(n)
	return n, nil
}

// end wakes a body that is still being sent: nothing more is.
func (h *h2) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.opened.Broadcast()
}

// readHead reads up to the headers of the final answer.
func (h *h2) readHead(method string) (*http.Response, error) {
	for range maxInterim {
		f, err := h.next()
		if err != nil {
			return nil, h.failed(err)
		}
		head, ok := f.(*http2.MetaHeadersFrame)
		if !ok {
			return nil, errHTTP2 // a body before its head
		}
		resp, err := h.response(head, method)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode >= 200:
			return resp, nil
		case head.StreamEnded():
			return nil, errHTTP2
		}
	}
	return nil, errors.New("too many interim answers")
}

func (h *h2) failed(err error) error {
	switch {
	case h.c.in.err == errHeadTooLong:
		return errHeadTooLong
	case h.c.in.err != nil:
		return plain(h.c.in.err)
	case errors.Is(err, errReset), errors.Is(err, errHTTP2):
		return err
	}
	return errHTTP2
}

func (h *h2) response(f *http2.MetaHeadersFrame, method string) (*http.Response, error) {
	if f.Truncated {
		return nil, errHeadTooLong
	}
	status, err := strconv.Atoi(f.PseudoValue("status"))
	if err != nil || status < 100 || status > 999 || status == http.StatusSwitchingProtocols {
		return nil, errHTTP2
	}
	resp := &http.Response{StatusCode: status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, ContentLength: -1, Body: http.NoBody}
	for _, field := range f.RegularFields() {
		resp.Header.Add(field.Name, field.Value)
	}
	if lengths := resp.Header["Content-Length"]; len(lengths) > 0 {
		n, err := strconv.ParseUint(lengths[0], 10, 62)
		if err != nil || len(lengths) > 1 {
			return nil, errHTTP2
		}
		resp.ContentLength = int64(n)
	}
	if status >= 200 && !f.StreamEnded() {
		b := &h2Body{h: h, left: resp.ContentLength}
		if method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified {
			b.left = 0
		}
		resp.Body = b
	} else if status >= 200 && method != http.MethodHead && status != http.StatusNotModified && resp.ContentLength > 0 {
		return nil, errHTTP2 // less than was announced
	}
	return resp, nil
}

// errReset is a stream that the other side gave up.
var errReset = errors.New("the other side gave the request up")

// next returns the next frame of headers or data of the present stream. What
// belongs to the connection is dealt with on the way.
func (h *h2) next() (http2.Frame, error) {
	for {
		f, err := h.fr.ReadFrame()
		if err != nil {
			return nil, err
		}
		if _, ok := f.(*http2.SettingsFrame); !ok && !h.pastSettings {
			return nil, errHTTP2
		}
		h.pastSettings = true
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID != h.id {
				return nil, errHTTP2
			}
			return f, nil
		case *http2.DataFrame:
			if f.StreamID != h.id {
				return nil, errHTTP2
			}
			return f, nil
		case *http2.RSTStreamFrame:
			if f.StreamID == h.id {
				h.mu.Lock()
				h.refused = true
				h.mu.Unlock()
				return nil, errReset
			}
		case *http2.PushPromiseFrame:
			return nil, errHTTP2
		default:
			if err := h.control(f); err != nil {
				return nil, err
			}
		}
	}
}

// control deals with a frame that carries no part of an answer.
func (h *h2) control(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if err := h.settings(f); err != nil {
			return err
		}
		_, err := h.write(appendFrame(nil, http2.FrameSettings, http2.FlagSettingsAck, 0, nil))
		return err
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		_, err := h.write(appendFrame(nil, http2.FramePing, http2.FlagPingAck, 0, f.Data[:]))
		return err
	case *http2.GoAwayFrame:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.goneAway = true
		if f.LastStreamID < h.id {
			return errReset
		}
	case *http2.WindowUpdateFrame:
		h.mu.Lock()
		defer h.mu.Unlock()
		grown := &h.connection
		if f.StreamID == h.id {
			grown = &h.stream
		} else if f.StreamID != 0 {
			return nil // of one that is over
		}
		if *grown += int64(f.Increment); *grown > math.MaxInt32 {
			return errHTTP2
		}
		h.opened.Broadcast()
	}
	return nil
}

func (h *h2) settings(f *http2.SettingsFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return errHTTP2
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			h.stream += int64(s.Val) - h.initial
			h.initial = int64(s.Val)
			h.opened.Broadcast()
		case http2.SettingMaxFrameSize:
			h.maxFrame = int(s.Val)
		}
		return nil
	})
}

// h2Body is the body of an answer.
type h2Body struct {
	h     *h2
	data  []byte // of the last frame, valid until the next is read
	left  int64  // bytes that were announced and did not come; below 0: nothing was announced
	ended bool   // by the other side
	err   error
}

func (b *h2Body) Read(p []byte) (int, error) {
	for len(b.data) == 0 && b.err == nil {
		b.err = b.more()
	}
	if len(b.data) == 0 {
		return 0, b.err
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

func (b *h2Body) Close() error { return nil }

// more reads the next piece.
func (b *h2Body) more() error {
	if b.ended {
		if b.left > 0 {
			return io.ErrUnexpectedEOF
		}
		return io.EOF
	}
	f, err := b.h.next()
	if err != nil {
		if network := b.h.c.in.err; network != nil && network != io.EOF { // an end of the connection is none of the body
			return network
		}
		return io.ErrUnexpectedEOF
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame: // trailers, which are dropped
		if !f.StreamEnded() {
			return io.ErrUnexpectedEOF
		}
		b.ended = true
	case *http2.DataFrame:
		b.data, b.ended = f.Data(), f.StreamEnded()
		if b.left >= 0 {
			if b.left -= int64(len(b.data)); b.left < 0 {
				b.data = nil
				return io.ErrUnexpectedEOF
			}
		}
		return b.h.took(int(f.Header().Length), b.ended)
	}
	return nil
}

// took counts bytes that the other side has sent, and lets it send as many again
// before its windows close.
func (h *h2) took(n int, last bool) error {
	h.owed += n
	h.owedStream += n
	if last {
		h.owedStream = 0
	}
	if h.owed < h2Window/4 {
		return nil
	}
	b := appendWindow(make([]byte, 0, 26), 0, h.owed)
	if h.owedStream > 0 {
		b = appendWindow(b, h.id, h.owedStream)
	}
	h.owed, h.owedStream = 0, 0
	_, err := h.write(b)
	return err
}
