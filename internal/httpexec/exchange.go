package httpexec

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/yett-broker/yett/internal/bulk"
)

const (
	maxHead       = 256 << 10 // bytes of status lines and headers of one answer, 1xx included
	maxInterim    = 16        // answers with status 1xx before the real one
	bodyInOneCall = 16 << 10  // up to here a body is written together with its head
)

var errHeadTooLong = errors.New("the head of the answer is too long")

// exchange puts one request on the wire and reads its answer. keep says that
// the connection is in a state to carry another request.
func (cn *conn) exchange(ctx context.Context, t Target, w *request, s *scrubber) (res *Result, keep bool, err error) {
	// From here on a cancelled call closes the connection under our hands, and
	// what the kernel has not sent yet is dropped.
	stop := context.AfterFunc(ctx, cn.abort)
	stopQuiet := context.AfterFunc(t.Quiet, cn.hush)
	defer func() {
		left, quietLeft := stop(), stopQuiet()
		keep = keep && left && quietLeft
		if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
			err.(*Error).Cause = plain(ctxErr)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, false, notSent(plain(err))
	}
	if err := t.Begin(); err != nil {
		return nil, false, notSent(plain(err))
	}
	out := cn.start(t, w)
	if out.failed() {
		return nil, false, notSent(plain(out.err))
	}
	resp, err := cn.awaitHead(t, w.method)
	if err != nil {
		cn.abort()
		out.wait()
		if out.n == 0 {
			return nil, false, notSent(err)
		}
		return nil, false, maybeSent(err)
	}
	res = &Result{Status: resp.StatusCode}
	whole := cn.readBody(resp, t, s, res)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, false, maybeSent(context.Canceled)
	}
	res.Headers = answerHeaders(resp, w.method == "HEAD", s, res)
	res.Redacted = s.count
	if !out.done() { // answered before it had the whole request
		cn.abort()
		out.wait()
		return res, false, nil
	}
	return res, whole && out.err == nil && !resp.Close && cn.br.Buffered() == 0 && cn.h2.reusable(), nil
}

// start puts the request on the wire in the version that the connection speaks.
func (cn *conn) start(t Target, w *request) *outgoing {
	if cn.h2 != nil {
		return cn.h2.send(t, w)
	}
	return cn.send(t, w)
}

// awaitHead reads up to the end of the headers of the final answer. A long head
// keeps to the pace of large streams.
func (cn *conn) awaitHead(t Target, method string) (resp *http.Response, err error) {
	cn.in.left, cn.in.err = maxHead, nil
	if cn.h2 != nil {
		resp, err = cn.h2.readHead(method)
	} else {
		resp, err = cn.readHead(method)
	}
	head := bulk.Stream{Session: t.Session}
	head.Came(int(maxHead - cn.in.left))
	if err == nil {
		cn.in.left = math.MaxInt64
	}
	return resp, err
}

// outgoing is a request on its way out. n and err may be read once it is over.
type outgoing struct {
	over chan struct{} // nil: it was over when send returned
	n    int           // bytes that the connection took
	err  error
}

func (o *outgoing) wait() {
	if o.over != nil {
		<-o.over
	}
}

func (o *outgoing) done() bool {
	if o.over == nil {
		return true
	}
	select {
	case <-o.over:
		return true
	default:
		return false
	}
}

// failed reports that it is over and that not one byte went out.
func (o *outgoing) failed() bool { return o.over == nil && o.err != nil && o.n == 0 }

// send writes the request. A large body is written beside the reading, since
// an upstream may answer before it has read all of it.
func (cn *conn) send(t Target, w *request) *outgoing {
	o := &outgoing{}
	if len(w.body) <= bodyInOneCall {
		b := append(w.message(t, len(w.body)), w.body...)
		o.n, o.err = cn.rw.Write(b)
		clear(b)
		if o.err == nil {
			t.Sent()
		}
		return o
	}
	b := w.message(t, 0)
	o.over = make(chan struct{})
	go func() {
		defer close(o.over)
		o.n, o.err = cn.rw.Write(b)
		clear(b)
		if o.err == nil {
			var n int
			n, o.err = cn.rw.Write(w.body)
			o.n += n
		}
		if o.err == nil {
			t.Sent()
		}
	}()
	return o
}

// readHead is awaitHead for HTTP/1.1.
func (cn *conn) readHead(method string) (*http.Response, error) {
	req := &http.Request{Method: method}
	for range maxInterim {
		resp, err := http.ReadResponse(cn.br, req)
		switch {
		case cn.in.err == errHeadTooLong:
			return nil, errHeadTooLong
		case err != nil && cn.in.err != nil:
			return nil, plain(cn.in.err)
		case err != nil: // the parser's own words quote the upstream
			return nil, errors.New("the answer is not HTTP")
		case resp.ProtoMajor != 1, resp.StatusCode < 100, resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the answer is not HTTP/1.1")
		case resp.StatusCode < 200:
			continue
		}
		return resp, nil
	}
	return nil, errors.New("too many interim answers")
}
