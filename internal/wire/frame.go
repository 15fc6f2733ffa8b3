package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ErrFrameTooLarge is returned by FrameReader.Next for a line over MaxFrame.
var ErrFrameTooLarge = errors.New("a message is longer than 1 MiB")

// FrameReader splits a stream into lines. It holds at most MaxFrame+1 bytes
// and allocates only as much as has arrived.
type FrameReader struct {
	r          io.Reader
	buf        []byte
	start, end int
}

// NewFrameReader returns a reader of the frames of r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: r, buf: make([]byte, 4096)}
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

// makeRoom leaves at least one free byte behind end. After a large frame the
// buffer is given back, so that an idle channel is small.
func (f *FrameReader) makeRoom() {
	const small = 4096
	switch pending := f.end - f.start; {
	case pending == 0 && len(f.buf) > 16*small:
		f.buf, f.start, f.end = make([]byte, small), 0, 0
	case pending == 0:
		f.start, f.end = 0, 0
	case f.end < len(f.buf):
	case f.start > 0:
		copy(f.buf, f.buf[f.start:f.end])
		f.start, f.end = 0, pending
	default:
		grown := make([]byte, min(2*len(f.buf), MaxFrame+2))
		copy(grown, f.buf[:f.end])
		f.buf = grown
	}
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
	b, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// EncodeRequest returns the frame of a request with its newline.
func EncodeRequest(id int64, method string, params any) ([]byte, error) {
	b, err := json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", id, method, params})
	if err != nil {
		return nil, err
	}
	if len(b) > MaxFrame {
		return nil, ErrFrameTooLarge
	}
	return append(b, '\n'), nil
}

// DecodeReply decodes a response frame for a client. Members that it does not
// know are ignored. The id is 0 for a reply to an unreadable request.
func DecodeReply(frame []byte) (id int64, result json.RawMessage, fail *Error, err error) {
	var in struct {
		ID     *int64          `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  *rpcError       `json:"error"`
	}
	if err := json.Unmarshal(frame, &in); err != nil {
		return 0, nil, nil, err
	}
	if in.ID != nil {
		id = *in.ID
	}
	if in.Error != nil {
		return id, nil, in.Error.wire(), nil
	}
	if in.Result == nil {
		return id, nil, nil, errors.New("the reply has neither result nor error")
	}
	return id, in.Result, nil, nil
}
