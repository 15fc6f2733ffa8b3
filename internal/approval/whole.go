package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/action"
)

const (
	// wholeText is how long the text of an action may be, as it stands in the
	// document of a card: that of a body or an input, and that of all else.
	wholeText = 64 << 10
	// endText is how many bytes of a longer body or input are shown of its
	// beginning, and of its end.
	endText = 2 << 10
)

// ErrTooLong is returned by Queue.File for an action that cannot be shown whole
// and is no body or input, of which the two ends can be shown.
var ErrTooLong = errors.New("the action is too long to be shown to a person")

// shownLength is what s takes in a document.
func shownLength(s string) int {
	s = Escape(s, math.MaxInt)
	return len(s) + strings.Count(s, `\`) + strings.Count(s, `"`)
}

// ends returns a body or an input as it is shown: whole, or the two ends of it
// with how many bytes lie between.
func ends(content []byte) (beginning, end string, between int, sum string) {
	text := string(content)
	if shownLength(text) <= wholeText {
		return text, "", 0, ""
	}
	from, to := endText, len(text)-endText
	for from > 0 && !utf8.RuneStart(text[from]) && from > endText-utf8.UTFMax {
		from--
	}
	for to < len(text)-1 && !utf8.RuneStart(text[to]) && to < len(text)-endText+utf8.UTFMax {
		to++
	}
	digest := sha256.Sum256(content)
	// clones: the card is kept, and must not keep all of the text
	return strings.Clone(text[:from]), strings.Clone(text[to:]), to - from, hex.EncodeToString(digest[:])
}

// tooLong reports whether what is neither body nor input is too long.
func (r *Request) tooLong() bool {
	if r == nil {
		return false
	}
	n := 0
	for _, s := range []string{r.Method, r.Path, r.Query, r.Command, r.Direction, r.Local, r.Remote} {
		n += shownLength(s)
	}
	for _, h := range r.Headers {
		n += shownLength(h.Name) + shownLength(h.Value)
	}
	for _, e := range r.Env {
		n += shownLength(e.Name) + shownLength(e.Value)
	}
	return n > wholeText
}

// Warning says that a part of what is sent does not stand on the card, and is
// empty where all of it does.
func (r *Request) Warning() string {
	if r == nil || r.NotShown == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes of what is sent are NOT SHOWN: only its beginning and its end are", r.NotShown)
}

// show fills in what of an action is a body or an input.
func (r *Request) show(h *action.HTTP, s *action.SSH) {
	switch {
	case h != nil:
		r.BodySize = len(h.Body)
		r.Body, r.End, r.NotShown, r.SHA256 = ends(h.Body)
	case s != nil:
		r.StdinSize = len(s.Stdin)
		r.Stdin, r.End, r.NotShown, r.SHA256 = ends(s.Stdin)
	}
}
