package httpexec

import (
	"strings"

	"golang.org/x/net/http2"
)

// Frames of HTTP/2 (RFC 9113) and headers in HPACK (RFC 7541), written by hand into
// one buffer that its caller can wipe.

func appendPreface(b []byte) []byte {
	b = append(b, http2.ClientPreface...)
	settings := []byte{
		0, byte(http2.SettingEnablePush), 0, 0, 0, 0,
		0, byte(http2.SettingInitialWindowSize), 0, h2Window >> 16, 0, 0,
		0, byte(http2.SettingMaxHeaderListSize), 0, maxHead >> 16, 0, 0,
	}
	b = appendFrame(b, http2.FrameSettings, 0, 0, settings)
	return appendFrame(b, http2.FrameWindowUpdate, 0, 0, []byte{0, h2Window >> 16, 0, 0})
}

func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, id uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	return append(b, payload...)
}

// appendHeaders splits a block of headers into frames.
func appendHeaders(b []byte, id uint32, block []byte, last bool) []byte {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if last {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), h2FrameSize)
		if n == len(block) {
			return appendFrame(b, kind, flags|http2.FlagHeadersEndHeaders, id, block)
		}
		b = appendFrame(b, kind, flags, id, block[:n])
		block, kind, flags = block[n:], http2.FrameContinuation, 0
	}
}

// block is the headers in HPACK (RFC 7541): each a literal with its name, those
// with a secret such that nobody on the way may keep them in a table. The caller
// wipes it.
func (w *request) block(t Target) []byte {
	size := 256 + len(w.method) + len(w.target) + len(t.Host)
	for _, f := range w.fields {
		size += len(f.name) + len(f.text) + len(f.secret) + 16
	}
	b := make([]byte, 0, size) // never grown, see compose
	b = appendLiteral(b, false, ":method", w.method, nil)
	b = appendLiteral(b, false, ":scheme", t.Scheme, nil)
	b = appendLiteral(b, false, ":authority", t.authority(), nil)
	b = appendLiteral(b, true, ":path", "", w.target)
	for _, f := range w.fields {
		b = appendLiteral(b, len(f.secret) > 0, strings.ToLower(f.name), f.text, f.secret)
	}
	return b
}

func appendLiteral(b []byte, never bool, name, text string, secret []byte) []byte {
	if never {
		b = append(b, 0x10)
	} else {
		b = append(b, 0x00)
	}
	b = append(appendLength(b, len(name)), name...)
	b = appendLength(b, len(text)+len(secret))
	return append(append(b, text...), secret...)
}

// appendLength writes an integer with a prefix of 7 bits; the eighth says that
// what follows is not in Huffman's code.
func appendLength(b []byte, n int) []byte {
	if n < 127 {
		return append(b, byte(n))
	}
	b = append(b, 127)
	for n -= 127; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

func appendWindow(b []byte, id uint32, n int) []byte {
	return appendFrame(b, http2.FrameWindowUpdate, 0, id, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
