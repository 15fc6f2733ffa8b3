package httpexec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// H09: the reply of a token endpoint is withheld, as JSON or as a form; what only
// speaks of tokens is not.
func TestH09_TokenReplies(t *testing.T) {
	for _, c := range []struct {
		content, body string
		withheld      bool
	}{
		{"application/json", `{"access_token":"abc","token_type":"bearer"}`, true},
		{"application/json", ` {"a":1, "refresh_token" : "abc"}`, true},
		{"text/plain", `{"id_token":"abc"}`, true},
		{"", `{"Access_Token":"abc"}`, true},
		{"", `[{"data":{"accessToken":"abc"}}]`, true},
		{"application/json", `{"user":{"name":"a\"b\\","refreshToken" :` + "\n" + `"abc"}}`, true},
		{"application/json", `{"access\u005ftoken":"abc"}`, true},
		{"application/json", ")]}'\n" + `{"id-token":"abc"}`, true},
		{"application/json", `{"access_token":"abc","pad":"` + strings.Repeat("x", 3*window) + `"}`, true},
		{"text/xml", `<R><Credentials><AccessKeyId>A</AccessKeyId><SessionToken>abc</SessionToken></Credentials></R>`, true},
		{"application/xml", `<?xml version="1.0"?><a:r><a:SecretAccessKey x="1"> abc</a:SecretAccessKey></a:r>`, true},
		{"", `<r>a < b<access_token><![CDATA[abc]]></access_token></r>`, true},
		{"application/json", `{"roleCredentials":{"accessKeyId":"A","secretAccessKey":"abc"}}`, true},
		{"text/xml", `<r><SessionToken/><SessionToken></SessionToken><SessionTokens>abc</SessionTokens></r>`, false},
		{"application/json", `{"note":"\"access_token\":\"abc\""}`, false},
		{"application/json", `{"access_tokens":"abc","id":"access_token"}`, false},
		{"application/json", `{"pad":"` + strings.Repeat("x", 3*window) + `","access_token":"abc"}`, false}, // see docs/architecture.md
		{"application/x-www-form-urlencoded; charset=utf-8", "access_token=abc&scope=repo", true},
		{"text/plain", "scope=&refresh_token=abc", true},
		{"application/json", `{"access_token":null}`, false},
		{"application/json", `{"access_token":""}`, false},
		{"application/json", `{"properties":{"access_token":{"type":"string"}}}`, false},
		{"application/json", `{"access_token":{"type":"string"}}`, false},
		{"text/html", "<a href='?access_token=abc'>", false},
		{"text/plain", "use access_token=abc in the query", false},
		{"application/json", `["access_token"]`, false},
		{"application/x-www-form-urlencoded", "access_token=&a=b", false},
	} {
		s := newRawServer(t, answers(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", c.content, len(c.body), c.body)))
		res := do(t, newExecutor(t), s.target(), get)
		if (res.Withheld != "") != c.withheld || c.withheld && len(res.Body) > 0 || !c.withheld && string(res.Body) != c.body || res.Truncated {
			t.Errorf("%s %s: %+v %q", c.content, c.body, res, res.Body)
		}
	}
}

// What has no end is a partial answer when the time is over, and says so.
func TestStreamsWithoutEnd(t *testing.T) {
	for name, head := range map[string]string{
		"events":  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
			io.WriteString(c, head)
			for {
				piece := "data: " + secret + "\n\n"
				if name == "chunked" {
					piece = fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
				}
				if _, err := io.WriteString(c, piece); err != nil {
					return false
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		target := s.target()
		target.Timeout = 300 * time.Millisecond
		res := do(t, newExecutor(t), target, get)
		if !res.Truncated || !strings.Contains(res.Partial, "time limit") || !bytes.HasPrefix(res.Body, []byte("data: "+mark)) || res.Redacted < 2 {
			t.Errorf("%s: %+v %q", name, res, res.Body)
		}
	}
}

// deadlines remembers what a connection was told.
type deadlines struct {
	net.Conn
	read time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = t; return nil }

// Events are read for half a minute, so that one call of a tool returns them;
// everything else has the time of the call.
func TestEventsEndBeforeTheCall(t *testing.T) {
	for content, own := range map[string]bool{"text/event-stream": true, "Text/Event-Stream; charset=utf-8": true, "application/json": false} {
		in := &limitedReader{r: strings.NewReader("HTTP/1.1 200 OK\r\nContent-Type: " + content + "\r\n\r\ndata: x\n\n")}
		d := &deadlines{}
		cn := &conn{in: in, br: bufio.NewReader(in), rw: d}
		resp, err := cn.awaitHead(Target{}, "GET")
		if err != nil {
			t.Fatal(err)
		}
		cn.readBody(resp, Target{MaxBody: 100, deadline: time.Now().Add(time.Hour)}, newScrubber([]byte(secret)), &Result{})
		if left := time.Until(d.read); own != (left > eventStreamTime-5*time.Second && left <= eventStreamTime) {
			t.Errorf("%s: %v are left", content, left)
		}
	}
}

// fails takes some bytes and no more.
type fails struct{ left int }

var errFull = errors.New("full")

func (f *fails) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// Where the body cannot be kept the answer is one all the same, and nothing more
// is read.
func TestABodyThatNobodyTakes(t *testing.T) {
	sent := make(chan int, 1)
	s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
		n, piece := 0, make([]byte, 1<<20)
		for n < 1<<30 {
			m, err := c.Write(piece)
			if n += m; err != nil {
				break
			}
		}
		sent <- n
		return false
	})
	target := s.target()
	target.Body = &fails{left: 200_000}
	res := do(t, newExecutor(t), target, get)
	if res.Status != 200 || !errors.Is(res.Lost, errFull) || res.Truncated {
		t.Errorf("%+v", res)
	}
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes were still taken", n)
	}
}
