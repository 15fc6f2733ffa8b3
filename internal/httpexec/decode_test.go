package httpexec

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encode applies codings in their order, as Content-Encoding names them.
func encode(t *testing.T, text []byte, codings ...string) []byte {
	t.Helper()
	for _, coding := range codings {
		var out bytes.Buffer
		var w io.WriteCloser
		switch coding {
		case "gzip":
			w = gzip.NewWriter(&out)
		case "br":
			w = brotli.NewWriterLevel(&out, 1)
		case "zstd":
			z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
			if err != nil {
				t.Fatal(err)
			}
			w = z
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		text = out.Bytes()
	}
	return text
}

func encodedAnswer(body []byte, codings string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", codings, len(body), body)
}

var codingsKnown = [][]string{{"gzip"}, {"br"}, {"zstd"}, {"gzip", "br"}, {"br", "gzip"}, {"zstd", "zstd"}, {"gzip", "zstd", "br"}}

// H08: an echo is found under every encoding that is decoded, and under several.
func TestH08_EncodedEchoes(t *testing.T) {
	text := strings.Repeat("a line of the answer\n", 3000) + secret + strings.Repeat("and another\n", 3000)
	for _, codings := range codingsKnown {
		name := strings.Join(codings, ", ")
		s := newRawServer(t, answers(encodedAnswer(encode(t, []byte(text), codings...), strings.ToUpper(name))))
		e := newExecutor(t)
		for range 2 { // the second over the same connection: the first was read to its end
			res := do(t, e, s.target(), get)
			if string(res.Body) != strings.Replace(text, secret, mark, 1) || res.Redacted != 1 || res.Truncated || header(res, "Content-Encoding") != nil {
				t.Errorf("%s: %d bytes, %+v", name, len(res.Body), res.Partial)
			}
		}
		if n := s.connections(); n != 1 {
			t.Errorf("%s: %d connections", name, n)
		}
		empty := newRawServer(t, answers(encodedAnswer(nil, name)))
		if res := do(t, newExecutor(t), empty.target(), get); len(res.Body) != 0 || res.Truncated || res.Withheld != "" {
			t.Errorf("%s of nothing: %+v", name, res)
		}
	}
}

// H18: what a body becomes, what its encodings ask for and what they bring without
// becoming anything are bounded.
func TestH18_BombsOfEveryEncoding(t *testing.T) {
	zeros := make([]byte, 16<<20)
	nothing := bytes.Repeat(encode(t, nil, "gzip"), 100_000)
	for name, c := range map[string]struct {
		body []byte
		size int64
	}{
		"br":         {encode(t, zeros, "br"), 1 << 20},
		"zstd":       {encode(t, zeros, "zstd"), 1 << 20},
		"gzip, gzip": {encode(t, zeros, "gzip", "gzip"), 1 << 20},
		"br, zstd":   {encode(t, zeros, "br", "zstd"), 1 << 20},
		"gzip, br":   {encode(t, nothing, "br"), 0},
		"gzip, zstd": {encode(t, nothing, "zstd"), 0},
	} {
		s := newRawServer(t, answers(encodedAnswer(c.body, name)))
		e, target := newExecutor(t), s.target()
		target.MaxBody = 1 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res := do(t, e, target, get)
		runtime.ReadMemStats(&after)
		if int64(len(res.Body)) != c.size || !res.Truncated || !strings.Contains(res.Partial, "longer than the limit") {
			t.Errorf("%s: %d bytes, %+v", name, len(res.Body), res)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 { // both ends count
			t.Errorf("%s: allocated %d bytes", name, used)
		}
	}
}

func TestH18_WindowsOfEncodingsAreBounded(t *testing.T) {
	text := make([]byte, 17<<20)
	rand.NewChaCha8([32]byte{}).Read(text[:1<<20])
	var wide, long bytes.Buffer
	b := brotli.NewWriterOptions(&wide, brotli.WriterOptions{Quality: 1, LGWin: 24})
	b.Write(text)
	b.Close()
	z, err := zstd.NewWriter(&long, zstd.WithWindowSize(16<<20), zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	z.Write(text)
	z.Close()
	for coding, body := range map[string][]byte{"br": wide.Bytes(), "zstd": long.Bytes()} {
		s := newRawServer(t, answers(encodedAnswer(body, coding)))
		res := do(t, newExecutor(t), s.target(), get)
		if why := res.Withheld + res.Partial; !strings.Contains(why, "too much memory") || len(res.Body) != 0 {
			t.Errorf("%s: %d bytes, %+v", coding, len(res.Body), why)
		}
	}
}

// A changed or cut body is partial; it is never given out as it came.
func TestDamagedEncodings(t *testing.T) {
	text := strings.Repeat("some text that is encoded and then damaged; ", 400)
	for _, codings := range codingsKnown[:4] {
		name, whole := strings.Join(codings, ", "), encode(t, []byte(text), codings...)
		for cut := range 8 {
			part := whole[:len(whole)*(cut+1)/9]
			s := newRawServer(t, answers(encodedAnswer(part, name)))
			if res := do(t, newExecutor(t), s.target(), get); !res.Truncated || res.Partial != partialClosed || !strings.HasPrefix(text, string(res.Body)) {
				t.Errorf("%s cut at %d of %d: %+v", name, len(part), len(whole), res)
			}
		}
	}
	for name, body := range map[string]string{"br": string(encode(t, []byte(text), "br")) + "and more behind its end", "zstd": "no such frame " + secret, "gzip": string(encode(t, []byte(text), "gzip")) + "and more behind its end"} {
		s := newRawServer(t, answers(encodedAnswer([]byte(body), name)))
		res := do(t, newExecutor(t), s.target(), get)
		if res.Partial != partialDamaged || bytes.Contains(res.Body, []byte("no such")) {
			t.Errorf("%s: %+v %q", name, res, res.Body)
		}
	}
	// The connection ends within the body.
	whole := encode(t, []byte(text), "br")
	s := newRawServer(t, func(c net.Conn, _ int, _ string, _ *http.Request) bool {
		io.WriteString(c, encodedAnswer(whole, "br")[:len(encodedAnswer(whole, "br"))-len(whole)/2])
		return false
	})
	if res := do(t, newExecutor(t), s.target(), get); res.Partial != partialClosed {
		t.Errorf("cut off: %+v", res)
	}
}

// FuzzDecode: whatever is said to be encoded becomes no more than its limit.
func FuzzDecode(f *testing.F) {
	t := &testing.T{}
	for _, codings := range codingsKnown {
		f.Add(encode(t, []byte("some text; "+secret), codings...), strings.Join(codings, ","))
	}
	f.Fuzz(func(t *testing.T, body []byte, codings string) {
		resp := &http.Response{Header: http.Header{"Content-Encoding": {codings}}, Body: io.NopCloser(bytes.NewReader(body))}
		res := &Result{}
		in, none := decoded(resp, Target{MaxBody: 1 << 16}, res)
		if in == nil {
			if !none && res.Withheld == "" && res.Partial == "" {
				t.Errorf("%q of %q: no body, and no reason", codings, body)
			}
			return
		}
		defer in.Close()
		var kept keptBody
		st := stream{s: newScrubber([]byte(secret)), out: &kept}
		st.copy(in, 1<<16, func([]byte, bool) bool { return false })
		if len(kept) > 1<<16*len(mark) || slices.Contains(strings.Split(codings, ","), "br") && bytes.Contains(kept, []byte(secret)) {
			t.Errorf("%d bytes", len(kept))
		}
	})
}
