package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ErrFrameTooLarge is returned by FrameReader.Next for a line over MaxFrame.
var ErrFrameTooLarge = errors.New("a message is longer than 1 MiB")

// FrameReader splits a stream into lines. It holds at most MaxFrame+2 bytes, and
// a sixteenth of that until as much has arrived.
type FrameReader struct {
	r          io.Reader
	buf        []byte
	start, end int
}

// NewFrameReader returns a reader of the frames of r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: r, buf: make([]byte, smallBuffer)}
}

// Next returns the next line without its newline, valid until the next call.
// It returns io.EOF at the end of the stream, io.ErrUnexpectedEOF when the
// stream ends inside a line, ErrFrameTooLarge for a line over MaxFrame, and
// else the error of the underlying reader.
func (f *FrameReader) Next() ([]byte, error) {
	scanned := f.start
	for {
		if i := bytes.IndexByte(f.buf[scanned:f.end], '\n'); i >= 0 {
			line := f.buf[f.start : scanned+i]
			f.start = scanned + i + 1
			if len(line) > MaxFrame {
				return nil, ErrFrameTooLarge
			}
			return line, nil
		}
		if f.end-f.start > MaxFrame {
			return nil, ErrFrameTooLarge
		}
		f.makeRoom()
		scanned = f.end
		n, err := f.r.Read(f.buf[f.end:])
		f.end += n
		if n > 0 {
			continue
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) && f.end > f.start {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
}

const smallBuffer = 4 << 10

// largeBuffers hold any frame. Those who read large frames one after the other
// take the same one again, which is quicker than fresh memory.
var largeBuffers = sync.Pool{New: func() any { return new([MaxFrame + 2]byte) }}

// makeRoom leaves at least one free byte behind end. After a large frame the
// buffer is given back, so that an idle channel is small.
func (f *FrameReader) makeRoom() {
	switch pending := f.end - f.start; {
	case pending == 0 && len(f.buf) == MaxFrame+2:
		largeBuffers.Put((*[MaxFrame + 2]byte)(f.buf))
		f.buf, f.start, f.end = make([]byte, smallBuffer), 0, 0
	case pending == 0:
		f.start, f.end = 0, 0
	case f.end < len(f.buf):
	case f.start > 0:
		copy(f.buf, f.buf[f.start:f.end])
		f.start, f.end = 0, pending
	default:
		f.grow()
	}
}

// grow doubles the buffer, up to a sixteenth of the longest frame, and then takes
// a large one.
func (f *FrameReader) grow() {
	var grown []byte
	if n := 2 * len(f.buf); n <= MaxFrame/16 {
		grown = make([]byte, n)
	} else {
		grown = largeBuffers.Get().(*[MaxFrame + 2]byte)[:]
	}
	copy(grown, f.buf[:f.end])
	f.buf = grown
}

// Reply is one response frame. Exactly one of Result and Error is set.
type Reply struct {
	ID     json.RawMessage
	Result any
	Error  *Error
}

// Encode returns the frame with its newline. U+2028, U+2029, '<', '>' and '&'
// are escaped, so a line-reading client cannot be split by content.
func (r Reply) Encode() ([]byte, error) {
	out := struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result,omitempty"`
		Error   *rpcError       `json:"error,omitempty"`
	}{JSONRPC: "2.0", ID: r.ID, Result: r.Result}
	if len(r.ID) == 0 {
		out.ID = json.RawMessage("null")
	}
	if r.Error != nil {
		out.Result, out.Error = nil, r.Error.rpc()
	} else if r.Result == nil {
		out.Result = struct{}{}
	}
	return encodeLine(out)
}

// encodeLine ends what it encodes with a newline, and copies it once.
func encodeLine(v any) ([]byte, error) {
	var line bytes.Buffer
	if err := json.NewEncoder(&line).Encode(v); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

// EncodeRequest returns the frame of a request with its newline.
func EncodeRequest(id int64, method string, params any) ([]byte, error) {
	line, err := encodeLine(struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", id, method, params})
	if err == nil && len(line) > MaxFrame+1 {
		err = ErrFrameTooLarge
	}
	if err != nil {
		return nil, err
	}
	return line, nil
}

// Result is the result of a reply.
type Result struct{ value value }

// DecodeReply decodes a response frame for a client, which trusts its broker:
// members that it does not know are ignored. The id is 0 for a reply to an
// unreadable request. The result stays when the frame goes.
func DecodeReply(frame []byte) (id int64, result Result, fail *Error, err error) {
	top, err := parseReply(bytes.Clone(frame))
	if err != nil {
		return 0, Result{}, nil, err
	}
	if v, ok := top.member("id"); ok {
		if err := json.Unmarshal(v.raw, &id); err != nil { // null leaves it 0
			return 0, Result{}, nil, err
		}
	}
	if v, ok := top.member("error"); ok && v.kind != 'n' {
		var in rpcError
		if err := json.Unmarshal(v.raw, &in); err != nil {
			return 0, Result{}, nil, err
		}
		return id, Result{}, in.wire(), nil
	}
	v, ok := top.member("result")
	if !ok {
		return id, Result{}, nil, errors.New("the reply has neither result nor error")
	}
	return id, Result{v}, nil, nil
}

// Decode decodes the result into what dst points to. A piece of a body has half a
// mebibyte, which encoding/json would go over four times more.
func (r Result) Decode(dst any) error {
	body, ok := dst.(*OperationBodyResult)
	if !ok {
		return json.Unmarshal(r.value.raw, dst)
	}
	if r.value.kind != '{' {
		return errors.New("not an object")
	}
	fields := map[string]any{"size": &body.Size, "eof": &body.EOF, "matches": &body.Matches, "next_offset": &body.NextOffset}
	for _, m := range r.value.members {
		var err error
		switch to := fields[m.name]; {
		case m.name == "bytes_base64":
			body.BytesBase64, err = m.base64()
		case to != nil:
			err = json.Unmarshal(m.raw, to)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}
