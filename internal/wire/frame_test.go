package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// pieces is a stream that comes in given pieces.
type pieces struct {
	parts [][]byte
	err   error
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.parts) == 0 {
		return 0, p.err
	}
	n := copy(b, p.parts[0])
	if p.parts[0] = p.parts[0][n:]; len(p.parts[0]) == 0 {
		p.parts = p.parts[1:]
	}
	return n, nil
}

func readAll(r io.Reader) (lines []string, err error) {
	f := NewFrameReader(r)
	for {
		line, err := f.Next()
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line))
	}
}

func TestFrames(t *testing.T) {
	full := strings.Repeat("x", MaxFrame)
	for _, c := range []struct {
		name, in string
		want     []string
		err      error
	}{
		{"nothing", "", nil, io.EOF},
		{"one", "a\n", []string{"a"}, io.EOF},
		{"several", "a\nbb\n\nc\n", []string{"a", "bb", "", "c"}, io.EOF},
		{"end in the middle", "a\nb", []string{"a"}, io.ErrUnexpectedEOF},
		{"longest", full + "\nb\n", []string{full, "b"}, io.EOF},
		{"longest, twice", full + "\n" + full + "\n", []string{full, full}, io.EOF},
		{"one too long", "a\n" + full + "x\nb\n", []string{"a"}, ErrFrameTooLarge},
		{"too long without an end", full + "x", nil, ErrFrameTooLarge},
		{"longest without an end", full, nil, io.ErrUnexpectedEOF},
		{"no other line ends", "a\u2028b\u2029c\rd\x85\n", []string{"a\u2028b\u2029c\rd\x85"}, io.EOF},
	} {
		readers := map[string]io.Reader{
			"at once": strings.NewReader(c.in), "with the end": iotest.DataErrReader(strings.NewReader(c.in)),
			"in halves": iotest.HalfReader(strings.NewReader(c.in)), "in two": &pieces{[][]byte{[]byte(c.in[:len(c.in)/2]), []byte(c.in[len(c.in)/2:])}, io.EOF},
		}
		if len(c.in) < 1000 {
			readers["byte by byte"] = iotest.OneByteReader(strings.NewReader(c.in))
		}
		for how, r := range readers {
			got, err := readAll(r)
			if !errors.Is(err, c.err) || len(got) != len(c.want) {
				t.Errorf("%s, %s: %d lines, %v", c.name, how, len(got), err)
				continue
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("%s, %s: line %d differs", c.name, how, i)
				}
			}
		}
	}
}

// TestFrameComesAtOnce: a line is returned although nothing follows it.
func TestFrameComesAtOnce(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	go w.Write([]byte("a\nb"))
	f := NewFrameReader(r)
	if line, err := f.Next(); err != nil || string(line) != "a" {
		t.Fatalf("%q %v", line, err)
	}
	go w.Write([]byte("c\n"))
	if line, err := f.Next(); err != nil || string(line) != "bc" {
		t.Fatalf("%q %v", line, err)
	}
}

func TestFrameReaderPassesErrors(t *testing.T) {
	broken := errors.New("broken")
	if got, err := readAll(&pieces{[][]byte{[]byte("a\nb")}, broken}); !errors.Is(err, broken) || len(got) != 1 {
		t.Fatalf("%v %v", got, err)
	}
}

// endless sends the same byte for ever and counts.
type endless struct{ sent int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	e.sent += len(b)
	return len(b), nil
}

// TestFrameReaderIsBounded: a line without an end costs one frame of memory,
// and a large frame is not kept.
func TestFrameReaderIsBounded(t *testing.T) {
	e := &endless{}
	f := NewFrameReader(e)
	if _, err := f.Next(); !errors.Is(err, ErrFrameTooLarge) {
		t.Fatal(err)
	}
	if e.sent > MaxFrame+2 || len(f.buf) > MaxFrame+2 {
		t.Fatalf("read %d, holds %d", e.sent, len(f.buf))
	}
	f = NewFrameReader(io.MultiReader(strings.NewReader(strings.Repeat("x", MaxFrame)+"\n"), strings.NewReader("a\n")))
	f.Next()
	if line, err := f.Next(); err != nil || string(line) != "a" || len(f.buf) > 64<<10 {
		t.Fatalf("%q %v, holds %d", line, err, len(f.buf))
	}
	if f := NewFrameReader(e); len(f.buf) > 4096 {
		t.Fatalf("an idle channel holds %d", len(f.buf))
	}
}

func TestM08_NoLineSeparatorInAReply(t *testing.T) {
	raw := json.RawMessage("{\"a\":\"x\u2028y\u2029z\"}")
	for name, r := range map[string]Reply{
		"string":      {ID: json.RawMessage("1"), Result: map[string]any{"a": "x\u2028y\u2029z"}},
		"raw message": {ID: json.RawMessage("1"), Result: raw},
		"raw inside":  {ID: json.RawMessage("1"), Result: map[string]any{"r": raw, "n": []any{raw}}},
		"id":          {ID: json.RawMessage("\"a\u2028b\""), Result: 1},
		"error":       {ID: json.RawMessage("1"), Error: Errorf(CodeBadRequest, "x\u2028y").With("k", raw)},
	} {
		out, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(out, "\u2028\u2029") || bytes.Count(out, []byte("\n")) != 1 || !bytes.HasSuffix(out, []byte("\n")) {
			t.Errorf("%s: %q", name, out)
		}
		if !json.Valid(out) {
			t.Errorf("%s: not JSON", name)
		}
	}
}

func TestReply(t *testing.T) {
	for want, r := range map[string]Reply{
		`{"jsonrpc":"2.0","id":null,"result":{}}`:      {},
		`{"jsonrpc":"2.0","id":7.50,"result":{"a":1}}`: {ID: json.RawMessage("7.50"), Result: json.RawMessage(`{"a": 1}`)},
		`{"jsonrpc":"2.0","id":"a","result":{}}`:       {ID: json.RawMessage(`"a"`), Result: Empty{}},
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"m","data":{"code":"busy","next_step":"Wait for answers before asking more."}}}`: {ID: json.RawMessage("1"), Result: 1, Error: Errorf(CodeBusy, "m")},
	} {
		out, err := r.Encode()
		if err != nil || string(out) != want+"\n" {
			t.Errorf("%s%v, want %s", out, err, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	frame, err := EncodeRequest(9, MethodSessionWait, SessionWait{SessionID: "s", Sequence: 1, WaitMS: 5})
	if err != nil {
		t.Fatal(err)
	}
	req, fail := DecodeRequest(bytes.TrimSuffix(frame, []byte("\n")))
	if fail != nil || req.Method != MethodSessionWait || string(req.ID) != "9" {
		t.Fatalf("%+v %v", req, fail)
	}
	out, _ := Reply{ID: req.ID, Error: NewError(CodeSessionEnded).With("end_reason", "revoked")}.Encode()
	id, _, got, err := DecodeReply(out)
	if err != nil || id != 9 || !errors.Is(got, &Error{Code: CodeSessionEnded}) || got.Data["end_reason"] != "revoked" || got.NextStep == "" {
		t.Fatalf("%d %+v %v", id, got, err)
	}
	if _, result, fail, err := DecodeReply([]byte(`{"jsonrpc":"2.0","id":9,"result":{},"later":1}`)); err != nil || fail != nil || string(result.value.raw) != "{}" {
		t.Fatalf("replies may grow: %s %v %v", string(result.value.raw), fail, err)
	}
	if _, _, _, err := DecodeReply([]byte(`{"jsonrpc":"2.0","id":9}`)); err == nil {
		t.Fatal("a reply with nothing in it")
	}
	if _, err := EncodeRequest(1, "m", strings.Repeat("x", MaxFrame)); !errors.Is(err, ErrFrameTooLarge) {
		t.Fatalf("a request over the limit: %v", err)
	}
}

var frameSeeds = []string{"", "a", "a\n", "a\nb\n", "\n\n\n", "a\u2028b\n", strings.Repeat("x", 5000) + "\n", strings.Repeat("x\n", 3000)}

// FuzzFrames: however the bytes arrive, the lines are the same, and joined
// again they are the stream.
// TestResult: a piece of a body is read as encoding/json would read it.
func TestResult(t *testing.T) {
	for _, in := range []string{
		`{"bytes_base64":"AAECAw==","size":4,"eof":true}`,
		`{"bytes_base64":"","size":0,"eof":true,"matches":0}`,
		`{"bytes_base64":null,"size":9,"eof":false,"matches":3,"next_offset":7}`,
		`{"bytes_base64":"\u0041AEC\/w==","later":{"size":[5,{"a":1,"A":2}]},"size":4}`,
		`{"size":1,"bytes_base64":"A"}`, `{"size":"1"}`, `{"bytes_base64":1}`, `[]`, `{`, `{} {}`,
	} {
		var got, want OperationBodyResult
		_, result, _, err := DecodeReply([]byte(`{"id":1,"result":` + in + `}`))
		if err == nil {
			err = result.Decode(&got)
		}
		wantErr := json.Unmarshal([]byte(in), &want)
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v, want %+v %v", in, got, err, want, wantErr)
		}
	}
}

// TestReplyMaySayMore: what the broker wrote is not judged as a request is.
func TestReplyMaySayMore(t *testing.T) {
	result := `{"a":1,"A":2,"deep":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`
	id, got, fail, err := DecodeReply([]byte(`{"jsonrpc":"2.0","result":` + result + `,"more":0,"More":0,"id":9}`))
	if id != 9 || string(got.value.raw) != result || fail != nil || err != nil {
		t.Fatal(id, string(got.value.raw), fail, err)
	}
}

func FuzzFrames(f *testing.F) {
	if len(frameSeeds) < 5 {
		f.Fatal("the corpus is empty")
	}
	for _, s := range frameSeeds {
		f.Add([]byte(s), uint16(1))
		f.Add([]byte(s), uint16(4095))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		p := &pieces{err: io.EOF}
		for rest := stream; len(rest) > 0; {
			n := min(int(cut)+1, len(rest))
			p.parts, rest = append(p.parts, rest[:n]), rest[n:]
		}
		got, err := readAll(p)
		joined := strings.Join(got, "\n")
		if len(got) > 0 {
			joined += "\n"
		}
		switch {
		case errors.Is(err, io.EOF) && joined == string(stream):
		case errors.Is(err, io.ErrUnexpectedEOF) && strings.HasPrefix(string(stream), joined) && !strings.Contains(string(stream[len(joined):]), "\n"):
		case errors.Is(err, ErrFrameTooLarge) && len(stream) > MaxFrame:
		default:
			t.Fatalf("%d lines, %v", len(got), err)
		}
	})
}
