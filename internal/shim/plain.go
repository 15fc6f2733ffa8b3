package shim

import (
	"bytes"
	"io"

	"github.com/yett-broker/yett/internal/peer"
)

// plainReader reads lines where this system can say nothing about who writes
// them. It calls every line attributed: the shim tells the broker that nothing
// guards the pipe, and a client of a system without evidence dials no broker.
type plainReader struct {
	r   io.Reader
	buf []byte
	err error
}

// ReadLine is peer.Stdio's.
func (p *plainReader) ReadLine(limit int) ([]byte, bool, error) {
	for {
		if i := bytes.IndexByte(p.buf, '\n'); i >= 0 {
			line := bytes.Clone(p.buf[:i])
			p.buf = p.buf[i+1:]
			return line, true, nil
		}
		switch {
		case len(p.buf) > limit:
			return nil, false, peer.ErrLineTooLong
		case p.err == io.EOF && len(p.buf) > 0:
			line := p.buf
			p.buf = nil
			return line, true, io.ErrUnexpectedEOF
		case p.err != nil:
			return nil, false, p.err
		}
		chunk := make([]byte, 64<<10)
		n, err := p.r.Read(chunk)
		p.buf, p.err = append(p.buf, chunk[:n]...), err
	}
}
