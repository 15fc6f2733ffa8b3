package yetttest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// unkindUpstream answers as no upstream should, by path.
func unkindUpstream(t *testing.T, canary string) *Upstream {
	var lines bytes.Buffer
	for i := 1; lines.Len() < 20<<20; i++ {
		fmt.Fprintf(&lines, "line %d of what is kept: %s\n", i, canary)
	}
	var member bytes.Buffer // 64 MiB of zeros; sixteen of them are a gzip of 1 GiB
	z := gzip.NewWriter(&member)
	io.CopyN(z, zeros{}, 64<<20)
	z.Close()
	return StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/large":
			w.Write(lines.Bytes())
		case "/v1/json":
			fmt.Fprintf(w, `{"items":[{"id":1,"name":"a"},{"id":2,"name":%q}]}`, canary)
		case "/v1/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bytes.Repeat(member.Bytes(), 16))
		case "/v1/gigabyte":
			w.Header().Set("Content-Length", strconv.Itoa(1<<30))
			io.CopyN(w, zeros{}, 1<<30)
		case "/v1/endless":
			for piece := bytes.Repeat([]byte("on and on "), 6000); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		case "/v1/headers":
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		case "/v1/loris":
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			for _, b := range []byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1000)) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		default:
			io.WriteString(w, "{}")
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func httpResult(t *testing.T, op Operation) wire.HTTPResult {
	t.Helper()
	var r wire.HTTPResult
	if err := json.Unmarshal(op.Result, &r); err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
	return r
}

// wholeBody reads a body in pieces.
func (c *Channel) wholeBody(ref string) []byte {
	c.b.T.Helper()
	var all []byte
	for {
		var piece wire.OperationBodyResult
		c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": ref, "offset": len(all), "limit": wire.MaxBodyChunk}), &piece)
		if all = append(all, piece.BytesBase64...); piece.EOF {
			return all
		}
	}
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the most memory that the broker has had, in MiB.
func (b *Broker) peak() int {
	b.T.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.PID()))
	if err != nil {
		b.T.Fatal(err)
	}
	kb, err := strconv.Atoi(string(peakLine.FindSubmatch(status)[1]))
	if err != nil {
		b.T.Fatal(err)
	}
	return kb >> 10
}

// H18, H09 of bodies: upstreams that send without end, bombs and pieces take
// neither the broker's memory nor the others' time; what was kept is partial and
// says why.
func TestH18_HostileUpstreams(t *testing.T) {
	up := unkindUpstream(t, "x")
	b := Start(t, up.Access(), "demo", canary)
	quiet := b.Granted("http:demo.read")
	latency := func() time.Duration {
		var all []time.Duration
		for range 30 {
			begin := time.Now()
			quiet.MustAct("http:demo.read", get("/v1/quiet"))
			all = append(all, time.Since(begin))
		}
		slices.Sort(all)
		return all[len(all)-1]
	}
	before := b.peak()
	for _, path := range []string{"/v1/bomb", "/v1/gigabyte", "/v1/endless", "/v1/headers"} {
		op := quiet.MustAct("http:demo.read", get(path))
		if path == "/v1/headers" {
			if op.State != "indeterminate" {
				t.Errorf("%s: %+v", path, op)
			}
			continue
		}
		if r := httpResult(t, op); r.Size != 64<<20 || !r.Truncated || !strings.Contains(r.Partial, "longer than the limit") || r.BodyRef == "" {
			t.Errorf("%s: %+v", path, r)
		}
	}
	idle := latency()
	for _, path := range []string{"/v1/bomb", "/v1/gigabyte", "/v1/endless"} {
		c := b.Granted("http:demo.read")
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.read", "action": get(path), "wait_ms": 0}), &Operation{})
	}
	loris := b.Granted("http:demo.read")
	var slow Operation // its end is the time limit's, which the executor's tests hold
	loris.Must(wire.MethodActionRequest, loris.Next(map[string]any{"capability": "http:demo.read", "action": get("/v1/loris"), "wait_ms": 100}), &slow)
	if slow.State != "executing" {
		t.Errorf("slowloris: %+v", slow)
	}
	busy := latency()
	grown := b.peak() - before
	t.Logf("the slowest of 30 calls of another session: %v idle, %v meanwhile; the broker grew by %d MiB to %d MiB", idle, busy, grown, b.peak())
	if grown > 64 {
		t.Errorf("the broker grew by %d MiB", grown)
	}
}

// A09: a body lies sealed on the disk, opens in its own session only, is searched
// in the broker, and is the person's to read by proof.
func TestA09_BodiesAreSealed(t *testing.T) {
	const inBody = "canary-in-a-body-81c5"
	up := unkindUpstream(t, inBody)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read")
	large := c.MustAct("http:demo.read", get("/v1/large"))
	small := c.MustAct("http:demo.read", get("/v1/json"))
	r := httpResult(t, large)
	body := c.wholeBody(r.BodyRef)
	if r.Truncated || int64(len(body)) != r.Size || !bytes.HasPrefix(body, []byte("line 1 of")) || !bytes.HasSuffix(body, []byte(inBody+"\n")) {
		t.Fatalf("%d bytes of %+v", len(body), r)
	}

	var found wire.OperationBodyResult
	c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": r.BodyRef, "offset": 0, "limit": 1 << 16, "grep": "^line 12345[67] ", "context": 1}), &found)
	if want := regexp.MustCompile(`^123455-line.*\n123456:line 123456 of.*\n123457:line 123457 of.*\n123458-line 123458 of.*\n$`); !want.Match(found.BytesBase64) || *found.Matches != 2 || !found.EOF {
		t.Errorf("grep: %.400q %+v", found.BytesBase64, found.Matches)
	}
	c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": httpResult(t, small).BodyRef, "offset": 0, "limit": 1 << 16, "json": "/items/*/name"}), &found)
	if got := string(found.BytesBase64); got != "\"a\"\n\""+inBody+"\"\n" {
		t.Errorf("json: %q", got)
	}

	// Another session names the same row and gets nothing.
	other := b.Granted("http:demo.read")
	for _, more := range []map[string]any{{}, {"grep": "line"}} {
		more["body_ref"], more["offset"], more["limit"] = r.BodyRef, 0, 1<<16
		if got := other.Call(wire.MethodOperationBody, other.Next(more)); got.Code() != wire.CodeBadRequest {
			t.Errorf("another session: %s %.100s", got.Code(), got.Result)
		}
	}

	// Nothing of it lies open on the disk.
	files := 0
	err := filepath.WalkDir(b.Location().Home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, secret := range []string{inBody, canary} {
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s has %q in it", path, secret)
			}
		}
		return nil
	})
	if err != nil || files < 4 {
		t.Fatalf("%d files, %v", files, err)
	}

	// The person reads it with a proof, also after a restart; without one nobody.
	b.Restart()
	b.Unlock()
	after := b.Granted("http:demo.read")
	if got := after.Call(wire.MethodOperationBody, after.Next(map[string]any{"body_ref": r.BodyRef, "offset": 0, "limit": 10})); got.Code() != wire.CodeBadRequest {
		t.Errorf("a session of the new broker: %s", got.Code())
	}
	if shown := b.Must("operation", "show", large.OperationID, "--body"); !bytes.Equal([]byte(shown.Stdout), body) {
		t.Errorf("operation show --body: %d bytes of %d", len(shown.Stdout), len(body))
	}
	denied := after.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/outside"})
	if shown := b.Run("operation", "show", denied.OperationID, "--body"); shown.Code != 1 || !strings.Contains(shown.Stderr, "has no body") {
		t.Errorf("of a denied one: %+v", shown)
	}
	if shown := b.RunPlain("operation", "show", large.OperationID, "--body"); shown.Code == 0 || strings.Contains(shown.Stdout, inBody) {
		t.Errorf("without a proof: exit %d, %d bytes", shown.Code, len(shown.Stdout))
	}
	request := map[string]any{"operation_id": large.OperationID, "stream": "body", "offset": 0, "limit": 100}
	if got := after.Call(wire.MethodOperationShowBody, map[string]any{"request": request}); got.Code() != wire.CodeProofRequired {
		t.Errorf("on the socket, without a proof: %s %.100s", got.Code(), got.Result)
	}
	if shown := b.Run("operation", "show", large.OperationID, "--stream", "stderr"); shown.Code == 0 {
		t.Error("an HTTP answer has a standard error")
	}
	read := 0
	for _, row := range b.Activity() {
		if row.Kind == "body.read" {
			read++
		}
	}
	if read != 1 {
		t.Errorf("%d rows about the reading", read)
	}

	// A disk that takes nothing costs the body, not the action.
	if err := os.Chmod(filepath.Join(b.Location().Home, "bodies"), 0o500); err != nil {
		t.Fatal(err)
	}
	op := after.MustAct("http:demo.read", get("/v1/large"))
	if lost := httpResult(t, op); op.State != "completed" || lost.Status != 200 || lost.BodyRef != "" || lost.NotKept == "" {
		t.Errorf("%+v", lost)
	}
}
