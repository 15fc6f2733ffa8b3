package httpexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/bulk"
)

// droppedHeaders carry credentials or belong to one connection only. They are
// spelled as action.FoldHeader spells them: whoever reads an answer may take an
// underscore for a hyphen.
var droppedHeaders = map[string]bool{
	"set-cookie": true, "set-cookie2": true, "cookie": true,
	"www-authenticate": true, "proxy-authenticate": true,
	"authentication-info": true, "proxy-authentication-info": true,
	"authorization": true, "proxy-authorization": true, "set-authorization": true,
	"x-amz-security-token": true, "x-jwt": true, "jwt": true, "x-jwt-assertion": true,
	"connection": true, "proxy-connection": true, "keep-alive": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
}

// tokenHeaders are names of headers that hand out a token, without "x-" before
// them and "token" behind them. A token of pages or of changes is none.
var tokenHeaders = []string{"access", "auth", "authentication", "authorization", "bearer", "id", "jwt", "refresh", "session", "subject", "user"}

// isDropped reports whether an agent does not see a header of an answer.
func isDropped(name string) bool {
	folded := action.FoldHeader(name)
	if droppedHeaders[folded] {
		return true
	}
	kind, isToken := strings.CutSuffix(folded, "token")
	return isToken && slices.Contains(tokenHeaders, strings.TrimSuffix(strings.TrimPrefix(kind, "x-"), "-"))
}

// answerHeaders returns what the agent may see of the headers. Trailers are
// not handed on: they come after everything that a reader could check.
func answerHeaders(resp *http.Response, head bool, s *scrubber, res *Result) []action.Header {
	var named []string // headers that Connection declares hop-by-hop
	for _, v := range resp.Header["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			named = append(named, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	bodiless := head || resp.StatusCode == http.StatusNotModified
	out := make([]action.Header, 0, len(resp.Header))
	for name, values := range resp.Header {
		switch {
		case isDropped(name), slices.Contains(named, name):
			continue
		case name == "Content-Length" && !bodiless: // of what came, not of what is handed on
			continue
		case name == "Content-Encoding" && !bodiless && res.Withheld == "": // it is decoded
			continue
		}
		name = s.text(name)
		for _, v := range values {
			out = append(out, action.Header{Name: name, Value: s.text(v)})
		}
	}
	slices.SortStableFunc(out, func(a, b action.Header) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// readBody hands the body on and says in res what became of it. It reports
// whether the answer was read to its proper end. resp.Body is not closed:
// closing would read on, and what is left unread is dropped with the
// connection.
func (cn *conn) readBody(resp *http.Response, t Target, s *scrubber, res *Result) (whole bool) {
	if resp.Body == http.NoBody {
		return true
	}
	content := resp.Header.Get("Content-Type")
	if isEventStream(content) { // it has no end of its own
		cn.rw.SetReadDeadline(earlier(t.deadline, time.Now().Add(eventStreamTime)))
	}
	body, none := decoded(resp, t, res)
	if body == nil {
		return none
	}
	defer body.Close()
	var kept keptBody
	st := stream{s: s, out: &kept, bulk: bulk.Stream{Session: t.Session}}
	if t.Body != nil {
		st.out = t.Body
	}
	whole = st.copy(body, t.MaxBody, func(begin []byte, all bool) bool {
		if handsOutToken(content, begin, all) {
			res.Withheld = "the body hands out a token, and agents hold none"
		}
		return res.Withheld != ""
	})
	res.Body, res.Lost = kept, st.writeErr
	if res.Withheld == "" && res.Lost == nil && !whole {
		res.Truncated, res.Partial = true, cn.whyPartial(st.readErr, t)
	}
	if !whole {
		return false
	}
	// The decoder may stop short of the framing's own end.
	n, err := resp.Body.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

// Why a body is partial.
const (
	partialClosed  = "the other side ended it before its end"
	partialDamaged = "what came is damaged"
)

func (cn *conn) whyPartial(err error, t Target) string {
	switch {
	case err == nil, errors.Is(err, errCodedTooLong):
		return fmt.Sprintf("it is longer than the limit of %d bytes", t.MaxBody)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "the time limit passed; it may go on without an end"
	case errors.Is(err, errDamaged):
		return partialDamaged
	case errors.Is(err, errWindow):
		return errWindow.Error()
	}
	return partialClosed
}

// eventStreamTime is how long events are collected: shorter than a tool call
// waits, so that one call returns them.
const eventStreamTime = 30 * time.Second

func isEventStream(content string) bool {
	media, _, _ := strings.Cut(content, ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// keptBody collects a body that nobody takes as it comes.
type keptBody []byte

func (k *keptBody) Write(p []byte) (int, error) {
	*k = append(*k, p...)
	return len(p), nil
}
