package httpexec

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/yett-broker/yett/internal/bulk"
)

// What is echoed can be found in a decoded body only, and decoding is work that
// an upstream chooses. So a window that the other side asks for is bounded, how
// many encodings lie over each other, and the bytes that each of them takes: an
// encoding of nothing has no end of its own.
const (
	maxCodings      = 3
	maxBrotliWindow = 22      // bits; what encoders use unless they are told otherwise
	maxZstdWindow   = 8 << 20 // RFC 9659
)

var (
	errCodedTooLong = errors.New("the encoded body is too long")
	errDamaged      = errors.New("the encoded body is damaged")
	errWindow       = errors.New("its encoding asks for too much memory")
)

// decoded is the body without its encodings, in the order of their undoing. It is
// nil where there is none to read: an empty body has no encoding either.
func decoded(resp *http.Response, t Target, res *Result) (body io.ReadCloser, none bool) {
	var codings []string
	for _, v := range resp.Header["Content-Encoding"] {
		for coding := range strings.SplitSeq(v, ",") {
			if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "" && coding != "identity" {
				codings = append(codings, coding)
			}
		}
	}
	if len(codings) == 0 {
		return io.NopCloser(resp.Body), false
	}
	known := func(c string) bool { return decoders[strings.TrimPrefix(c, "x-")] != nil }
	if len(codings) > maxCodings || slices.ContainsFunc(codings, func(c string) bool { return !known(c) }) {
		res.Withheld = "the body has a content encoding that cannot be searched for echoes of the credential"
		return nil, false
	}
	all := &decoding{Reader: resp.Body}
	for _, coding := range slices.Backward(codings) {
		in := bufio.NewReader(&coded{in: all.Reader, of: all, left: mostCoded(t.MaxBody), bulk: bulk.Stream{Session: t.Session}})
		if _, err := in.Peek(1); err == io.EOF {
			all.Close()
			return nil, true
		}
		coding = strings.TrimPrefix(coding, "x-")
		if err := all.undo(decoders[coding], in); err != nil {
			all.Close()
			switch {
			case errors.Is(err, gzip.ErrHeader):
				res.Withheld = "the body is not the " + coding + " that it is said to be"
			case errors.Is(err, errWindow):
				res.Withheld = errWindow.Error()
			default:
				res.Truncated, res.Partial = true, partialClosed
			}
			return nil, false
		}
	}
	return all, false
}

// decoding is one decoder over the other. Its reader is the uppermost.
type decoding struct {
	io.Reader
	closers []func()
	failed  error // of what the decoders took; theirs may hide it
}

func (d *decoding) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case d.failed != nil:
		return n, d.failed
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return n, errWindow
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	}
	return n, errDamaged
}

func (d *decoding) undo(with decoder, in *bufio.Reader) (err error) {
	var end func()
	d.Reader, end, err = with(in)
	if end != nil {
		d.closers = append(d.closers, end)
	}
	return err
}

func (d *decoding) Close() error {
	for _, end := range d.closers {
		end()
	}
	return nil
}

// decoder returns what undoes one encoding of in, and what ends it or nil.
type decoder func(in *bufio.Reader) (out io.Reader, end func(), err error)

var decoders = map[string]decoder{
	"gzip": func(in *bufio.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(in)
		return z, nil, err
	},
	"br": func(in *bufio.Reader) (io.Reader, func(), error) {
		first, err := in.Peek(1)
		if err == nil && brotliWindow(first[0]) > maxBrotliWindow {
			err = errWindow
		}
		return brotli.NewReader(in), nil, err
	},
	"zstd": func(in *bufio.Reader) (io.Reader, func(), error) {
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	},
}

// brotliWindow is what a stream says in its first byte, RFC 7932 section 9.1.
func brotliWindow(b byte) int {
	switch {
	case b&1 == 0:
		return 16
	case b>>1&7 != 0:
		return 17 + int(b>>1&7)
	}
	return 17 // or less; what is not of the RFC does not decode
}

// mostCoded is how long a body may be before it is decoded: an encoding that
// makes nothing shorter adds a little.
func mostCoded(decoded int64) int64 { return decoded + decoded/8 + 4<<10 }

// coded is what one decoder takes.
type coded struct {
	in   io.Reader
	of   *decoding
	left int64
	bulk bulk.Stream
}

func (c *coded) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.of.failed = errCodedTooLong
		return 0, errCodedTooLong
	}
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.bulk.Came(n)
	if err != nil && err != io.EOF && c.of.failed == nil {
		c.of.failed = err
	}
	return n, err
}
