package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxDepth is the deepest nesting of arrays and objects in a message.
	maxDepth = 64
	// maxMembers bounds the comparison of member names.
	maxMembers = 1024
)

var errNotJSON = errors.New("the line is not one JSON message")

// inspect reads a line as the one parse on which everything that follows
// relies would read it, and says what makes it ambiguous: a member that stands
// twice in one object, also in another case, because parsers differ in which
// one they take. id is the raw top-level id if there is exactly one and it is
// usable. err is errNotJSON for a line that cannot be answered by its id.
func inspect(line []byte) (id json.RawMessage, problem string, err error) {
	if !utf8.Valid(line) {
		return nil, "", errNotJSON
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var stack []level
	ids := 0
	for first := true; ; first = false {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) && !first && len(stack) == 0 {
			break
		}
		if err != nil || (!first && len(stack) == 0) {
			return nil, "", errNotJSON
		}
		if n := len(stack); n > 0 && stack[n-1].wantsKey {
			if key, ok := tok.(string); ok {
				if p := stack[n-1].take(key); p != "" && problem == "" {
					problem = p
				}
				continue
			}
		}
		if n := len(stack); n > 0 {
			if n == 1 && stack[0].object && foldKey(stack[0].key) == foldKey("id") {
				if _, end := tok.(json.Delim); !end || tok == json.Delim('{') || tok == json.Delim('[') {
					ids++
					id = rawID(tok)
				}
			}
			stack[n-1].wantsKey = stack[n-1].object
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			if len(stack) >= maxDepth {
				return nil, "", errNotJSON
			}
			stack = append(stack, level{object: tok == json.Delim('{'), wantsKey: tok == json.Delim('{')})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
	}
	if ids > 1 {
		id = nil
	}
	return id, problem, nil
}

// level is one array or object that inspect is in.
type level struct {
	object   bool
	wantsKey bool
	key      string // the member that was named last
	folded   map[string]bool
}

func (l *level) take(key string) (problem string) {
	l.key, l.wantsKey = key, false
	folded := foldKey(key)
	switch {
	case l.folded[folded]:
		return "a member stands twice in one object (names are compared without regard to case)"
	case len(l.folded) >= maxMembers:
		return "an object has too many members"
	case l.folded == nil:
		l.folded = map[string]bool{}
	}
	l.folded[folded] = true
	return ""
}

// rawID returns an id that a reply can carry: a string, or an integer that
// every JSON parser keeps exactly.
func rawID(tok json.Token) json.RawMessage {
	switch v := tok.(type) {
	case string:
		b, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		return b
	case json.Number:
		n, err := v.Int64()
		if err != nil || n > 1<<53 || n < -1<<53 {
			return nil
		}
		return strconv.AppendInt(nil, n, 10)
	}
	return nil
}

// foldKey maps names that a case-folding parser would take for one another to
// one string: Unicode simple folding, so that U+017F is 's' and U+212A is 'k'.
func foldKey(s string) string {
	return strings.Map(func(r rune) rune {
		low := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			low = min(low, f)
		}
		return low
	}, s)
}
