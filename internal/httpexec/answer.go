package httpexec

import (
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/yett-broker/yett/internal/action"
)

// droppedHeaders carry credentials or belong to one connection only.
var droppedHeaders = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Cookie": true,
	"Www-Authenticate": true, "Proxy-Authenticate": true,
	"Authentication-Info": true, "Proxy-Authentication-Info": true,
	"Authorization": true, "Proxy-Authorization": true,
	"X-Auth-Token": true, "X-Subject-Token": true, "X-Access-Token": true,
	"X-Refresh-Token": true, "X-Amz-Security-Token": true,
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
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
		case droppedHeaders[name], slices.Contains(named, name):
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

// readBody fills in Body, Truncated and Withheld. It reports whether the
// answer was read to its proper end. resp.Body is not closed: closing would
// read on, and what is left unread is dropped with the connection.
func (cn *conn) readBody(resp *http.Response, limit int64, s *scrubber, res *Result) (whole bool) {
	if resp.Body == http.NoBody {
		return true
	}
	var body io.Reader = resp.Body
	switch encoding := strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ","))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(resp.Body)
		switch {
		case err == io.EOF: // no body at all
			return true
		case errors.Is(err, gzip.ErrHeader):
			res.Withheld = "the body is not the gzip that it is said to be"
			return false
		case err != nil:
			res.Truncated = true
			return false
		}
		body = z
	default:
		res.Withheld = "the body has a content encoding that cannot be searched for echoes of the credential"
		return false
	}
	// An echo that begins before the cap is read to its end, so that none is
	// cut in half.
	raw, err := readUpTo(body, limit+int64(s.lookahead()))
	cut := min(int64(len(raw)), limit)
	res.Truncated = err != nil || int64(len(raw)) > limit
	res.Body = s.bytes(raw, int(cut), res.Truncated)
	if res.Truncated {
		return false
	}
	// The decoder may stop short of the framing's own end.
	n, err := resp.Body.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

// readUpTo reads at most limit bytes; nil means that the end came first or
// just then. What it outgrows is wiped: it is not scrubbed yet.
func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	buf := make([]byte, 0, 2048)
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), 2*cap(buf))
			copy(grown, buf)
			clear(buf)
			buf = grown
		}
		room := min(int64(cap(buf)), limit)
		if int64(len(buf)) == room {
			return buf, nil
		}
		n, err := r.Read(buf[len(buf):room])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}
