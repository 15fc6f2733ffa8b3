package console

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	pieceShown = 32 << 10 // bytes of a text at once
	headShown  = 256      // bytes of what is no text
)

// kept is one stream of what an action brought back: it can be shown, or is kept
// no longer.
type kept struct {
	Stream, Label string
	Gone          bool
}

// keptOf are the streams that the outcome of an operation names.
func keptOf(op wire.OperationShown) []kept {
	var row struct {
		Outcome struct {
			Result struct {
				Body       string `json:"body_ref"`
				Stdout     string `json:"stdout_ref"`
				StdoutTail string `json:"stdout_tail_ref"`
				Stderr     string `json:"stderr_ref"`
				StderrTail string `json:"stderr_tail_ref"`
			}
		}
	}
	for _, raw := range op.Rows {
		json.Unmarshal(raw, &row) // a row of another shape names none
	}
	ref := row.Outcome.Result
	var all []kept
	for _, s := range []struct{ ref, stream, label string }{{ref.Body, "body", "the body of the answer"}, {ref.Stdout, "body", "standard output"},
		{ref.StdoutTail, "stdout-tail", "the end of standard output"}, {ref.Stderr, "stderr", "standard error"},
		{ref.StderrTail, "stderr-tail", "the end of standard error"}} {
		if s.ref != "" {
			all = append(all, kept{s.stream, s.label, !slices.Contains(op.Bodies, s.stream)})
		}
	}
	return all
}

// bodyView is a piece of a body as the page shows it: text, or the beginning of
// what is no text. Whoever answered chose it, so nothing of it is interpreted.
type bodyView struct {
	ID, Stream     string
	Size, From, To int64
	Text           string
	Hex, SHA256    string
}

// viewBody shows a piece of what an action brought back.
func (c *Console) viewBody(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	q := r.URL.Query()
	v := bodyView{ID: q.Get("id"), Stream: q.Get("stream")}
	v.From, _ = strconv.ParseInt(q.Get("from"), 10, 64)
	piece, fail := bodyPiece(o.page, v, pieceShown)
	if fail != nil {
		refuse(w, fail)
		return
	}
	text := piece.BytesBase64
	if !piece.EOF {
		text = wholeRunes(text)
	}
	v.Size, v.To = piece.Size, v.From+int64(len(text))
	if v.From > 0 || isText(text) {
		v.Text = shownText(text)
	} else {
		v.Hex = hex.Dump(text[:min(len(text), headShown)])
		v.SHA256, fail = bodySum(o.page, v, piece)
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	c.render(w, "body.html", v)
}

func bodyPiece(p Page, v bodyView, limit int64) (wire.OperationBodyResult, *wire.Error) {
	return ask[wire.OperationBodyResult](p, wire.MethodOperationShowBody,
		wire.OperationShowBody{OperationID: v.ID, Stream: v.Stream, Offset: v.From, Limit: limit})
}

// bodySum reads what follows the first piece of a body, for the SHA-256 of all.
func bodySum(p Page, v bodyView, piece wire.OperationBodyResult) (string, *wire.Error) {
	h := sha256.New()
	for {
		h.Write(piece.BytesBase64)
		if piece.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		v.From += int64(len(piece.BytesBase64))
		var fail *wire.Error
		if piece, fail = bodyPiece(p, v, wire.MaxBodyChunk); fail != nil {
			return "", fail
		}
	}
}

// isText reports whether bytes can be read as a text.
func isText(b []byte) bool { return utf8.Valid(b) && !slices.Contains(b, 0) }

// wholeRunes leaves out a character at the end that the next piece goes on with,
// and the first half of the end of a line.
func wholeRunes(b []byte) []byte {
	if len(b) > 1 && b[len(b)-1] == '\r' {
		return b[:len(b)-1]
	}
	for n := 1; n < min(utf8.UTFMax, len(b)); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

// layout has the ends of lines and the tabs that texts have and that a browser
// would show; everything else that does not draw itself is marked.
var layout = strings.NewReplacer("\r\n", "\n", "\t", "    ")

func shownText(b []byte) string { return approval.Printable(layout.Replace(string(b))) }
