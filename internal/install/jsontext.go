package install

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kinds of values, as far as an edit tells them apart.
type kind int

const (
	objectKind kind = iota
	arrayKind
	stringKind
	otherKind
)

// node is a value of a text, with its place in it.
type node struct {
	kind       kind
	start, end int
	text       string // what a string says
	items      []item
}

// item is a member of an object or an element of an array.
type item struct {
	name  string // of a member
	start int    // of the name, or of the element
	value *node
	comma int // where the comma behind it is, or -1
}

// SyntaxError is where a text stops being what its client reads.
type SyntaxError struct {
	Line, Column int
	Why          string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Why)
}

func syntaxError(text string, at int, why string) *SyntaxError {
	at = min(at, len(text))
	line := strings.Count(text[:at], "\n") + 1
	return &SyntaxError{Line: line, Column: utf8.RuneCountInString(text[strings.LastIndexByte(text[:at], '\n')+1:at]) + 1, Why: why}
}

// deepest is how far values may lie within each other.
const deepest = 200

// reader reads one text. What it does not understand it panics about with a
// *SyntaxError, which parseJSON returns.
type reader struct {
	text   string
	at     int
	format Format
	depth  int
}

// parseJSON reads a text as its client would. A text of blanks and comments has
// no value: nil.
func parseJSON(text string, format Format) (root *node, err error) {
	r := &reader{text: text, format: format}
	defer func() {
		if p := recover(); p != nil {
			syntax, ours := p.(*SyntaxError)
			if !ours {
				panic(p)
			}
			root, err = nil, syntax
		}
	}()
	if !utf8.ValidString(text) {
		r.fail("this is not UTF-8 text")
	}
	if strings.HasPrefix(text, "\ufeff") {
		r.at = len("\ufeff")
	}
	r.blanks()
	if r.at == len(text) {
		return nil, nil
	}
	root = r.value()
	r.blanks()
	if r.at < len(text) {
		r.fail("something follows the end of the value")
	}
	return root, nil
}

func (r *reader) fail(why string) { panic(syntaxError(r.text, r.at, why)) }

func (r *reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

// blanks skips white space and, where the client does, comments.
func (r *reader) blanks() {
	for r.at < len(r.text) {
		rest := r.text[r.at:]
		switch {
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
			r.at++
		case rest[0] != '/':
			return
		case !r.format.comments():
			r.fail("there is a comment, which this client does not read")
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			r.at += end
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				r.fail("a comment does not end")
			}
			r.at += end + 4
		default:
			r.fail("a slash stands where none can")
		}
	}
}

func (r *reader) value() *node {
	n := &node{kind: otherKind, start: r.at}
	switch c := r.peek(); {
	case c == '{' || c == '[':
		r.container(n)
	case c == '"':
		n.kind, n.text = stringKind, r.string()
	default:
		for r.at < len(r.text) && strings.IndexByte("+-.0123456789abcdefghijklmnopqrstuvwxyzE", r.text[r.at]) >= 0 {
			r.at++
		}
		if !json.Valid([]byte(r.text[n.start:r.at])) {
			r.at = n.start
			r.fail("a value is missing or is not one")
		}
	}
	n.end = r.at
	return n
}

func (r *reader) container(n *node) {
	if r.depth++; r.depth > deepest {
		r.fail("values lie too deep within each other")
	}
	defer func() { r.depth-- }()
	closing := byte(']')
	n.kind = arrayKind
	if r.peek() == '{' {
		n.kind, closing = objectKind, '}'
	}
	for r.at++; ; {
		r.blanks()
		if r.peek() == closing && (len(n.items) == 0 || r.format.trailingCommas()) {
			break
		}
		it := item{start: r.at, comma: -1}
		if n.kind == objectKind {
			it.name = r.name()
		}
		it.value = r.value()
		r.blanks()
		more := r.peek() == ','
		if more {
			it.comma = r.at
			r.at++
		}
		n.items = append(n.items, it)
		if !more {
			if r.peek() != closing {
				r.fail(fmt.Sprintf("a comma or %q is missing", closing))
			}
			break
		}
	}
	r.at++
}

func (r *reader) name() string {
	if r.peek() != '"' {
		r.fail("a name in quotation marks is missing")
	}
	name := r.string()
	r.blanks()
	if r.peek() != ':' {
		r.fail("a colon is missing")
	}
	r.at++
	r.blanks()
	return name
}

func (r *reader) string() string {
	start := r.at
	for r.at++; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '\\':
			r.at++
		case c == '\n':
			r.fail("a string does not end on its line")
		case c == '"':
			r.at++
			var s string
			if json.Unmarshal([]byte(r.text[start:r.at]), &s) != nil {
				r.at = start
				r.fail("a string has an escape or a character that is none")
			}
			return s
		}
	}
	r.at = start
	r.fail("a string does not end")
	return ""
}
