package shim

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
)

// inlineBody is the longest body in bytes that stands in a result.
const inlineBody = 64 << 10

// body returns the lines that show a body: its text if it is short text, else
// where it can be read.
func (c *call) body(ctx context.Context, s *client.Session, name, ref string, size int64) []string {
	elsewhere := func(what string) []string {
		return []string{fmt.Sprintf("%s: %s, %d bytes; read_result with body_ref %q gives it.", name, what, size, ref)}
	}
	switch {
	case size == 0:
		return []string{name + ": empty"}
	case ref == "":
		return []string{fmt.Sprintf("%s: %d bytes, which could not be kept", name, size)}
	case size > inlineBody:
		return elsewhere("long")
	}
	wctx, cancel := within(ctx, 0)
	defer cancel()
	b, err := s.Body(wctx, ref, 0, inlineBody)
	if err != nil {
		// The action is done and its result stands; only this copy is missing.
		c.link.settle(c.attached, err)
		return elsewhere("not shown here (" + err.Error() + ")")
	}
	if !b.EOF {
		return elsewhere("long")
	}
	if !isText(b.BytesBase64) {
		return elsewhere("not text")
	}
	return []string{fmt.Sprintf("%s (%d bytes of text):", name, size), string(b.BytesBase64)}
}

// isText reports whether b can stand in a text block unchanged.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// bodyPiece words a piece of a body. Text is cut between characters.
func bodyPiece(ref string, offset int64, b client.BodyResult) *mcp.CallToolResult {
	piece := b.BytesBase64
	if !b.EOF {
		piece = wholeCharacters(piece)
	}
	form, shown := "text", string(piece)
	if !isText(piece) {
		piece = b.BytesBase64
		form, shown = "base64", base64.StdEncoding.EncodeToString(piece)
	}
	next := offset + int64(len(piece))
	status := fmt.Sprintf("%s: bytes %d to %d of %d as %s, the end.", ref, offset, next, b.Size, form)
	if next < b.Size {
		status = fmt.Sprintf("%s: bytes %d to %d of %d as %s. Next: read_result with offset %d.", ref, offset, next, b.Size, form, next)
	}
	return text(false, status, shown)
}

// wholeCharacters drops the beginning of a character at the end of b.
func wholeCharacters(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i < len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}
