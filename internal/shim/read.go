package shim

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/wire"
)

func readResult(ctx context.Context, c *call) *mcp.CallToolResult {
	var in struct {
		BodyRef string  `json:"body_ref"`
		Offset  int64   `json:"offset" wire:"optional"`
		Limit   *int64  `json:"limit" wire:"optional"`
		Grep    *string `json:"grep" wire:"optional"`
		Context *int    `json:"context" wire:"optional"`
		Matches *int    `json:"matches" wire:"optional"`
		JSON    *string `json:"json" wire:"optional"`
	}
	if bad := decode(c.arguments, &in); bad != nil {
		return badCall(bad)
	}
	limit := int64(inlineBody)
	if in.Limit != nil {
		limit = *in.Limit
	}
	if in.Offset < 0 || limit < 1 || limit > wire.MaxBodyChunk {
		return badCall(&badArguments{"offset must be at least 0, limit from 1 to 524288"})
	}
	s, no := c.session(ctx)
	if no != nil {
		return no
	}
	wctx, cancel := within(ctx, searchMargin)
	defer cancel()
	if in.Grep != nil || in.JSON != nil || in.Context != nil || in.Matches != nil {
		search := client.Search{Grep: in.Grep, Context: in.Context, Matches: in.Matches, JSON: in.JSON}
		b, err := s.SearchBody(wctx, in.BodyRef, search, in.Offset, limit)
		if err != nil {
			return c.failed(err, noEffect)
		}
		return bodyFound(in.BodyRef, search, b)
	}
	b, err := s.Body(wctx, in.BodyRef, in.Offset, limit)
	if err != nil {
		return c.failed(err, noEffect)
	}
	return bodyPiece(in.BodyRef, in.Offset, b)
}

// searchMargin is what a search may take, in milliseconds.
const searchMargin = 5000

// bodyFound words what a search found.
func bodyFound(ref string, search client.Search, b client.BodyResult) *mcp.CallToolResult {
	n := 0
	if b.Matches != nil {
		n = *b.Matches
	}
	what := "values"
	if search.Grep != nil {
		what = "matching lines"
	}
	status := fmt.Sprintf("%s: %d %s in %d bytes; all of it was searched.", ref, n, what, b.Size)
	switch {
	case b.EOF:
	case b.NextOffset != nil:
		status = fmt.Sprintf("%s: %d %s so far in %d bytes. Next: read_result with the same grep and offset %d.", ref, n, what, b.Size, *b.NextOffset)
	default:
		status = fmt.Sprintf("%s: the first %d %s in %d bytes; what follows is longer than limit. Next: a narrower json, or a greater limit.", ref, n, what, b.Size)
	}
	if n == 0 {
		return text(false, status)
	}
	if !isText(b.BytesBase64) {
		return text(false, status, fmt.Sprintf("%q", b.BytesBase64))
	}
	return text(false, status, string(b.BytesBase64))
}
