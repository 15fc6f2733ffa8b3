package install

import (
	"bytes"
	"encoding/json"
	"strings"
)

// style is how a text is laid out, so that what is added looks like the rest.
type style struct {
	newline string
	unit    string // of indentation
	compact bool   // all on one line
}

func (d *document) style() style {
	s := style{newline: "\n", unit: "  "}
	if strings.Contains(d.text, "\r\n") {
		s.newline = "\r\n"
	}
	if d.root == nil || len(d.root.items) == 0 {
		return s
	}
	s.compact = !strings.Contains(d.raw(d.root), "\n")
	if own, indent := ownLine(d.text, d.root.items[0].start); own && indent != "" {
		s.unit = indent
	}
	return s
}

// render lays out a JSON text, whose first line stands behind indent.
func (s style) render(value, indent string) string {
	if s.compact {
		return compact(value)
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(value), indent, s.unit) != nil {
		return value
	}
	return strings.ReplaceAll(b.String(), "\n", s.newline)
}

// compact is a JSON text without its white space; text with comments stays.
func compact(value string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(value)) != nil {
		return value
	}
	return b.String()
}

// quote is a JSON string.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// ownLine reports whether only blanks stand before at on its line, and which.
func ownLine(text string, at int) (bool, string) {
	line := strings.LastIndexByte(text[:at], '\n')
	indent := text[line+1 : at]
	return line >= 0 && strings.Trim(indent, " \t") == "", indent
}

// indentOf is the indentation of the line that at lies on.
func indentOf(text string, at int) string {
	line := text[strings.LastIndexByte(text[:at], '\n')+1 : at]
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// lineEnd is the end of the line that at lies on, if only a comment stands
// behind at there; else at.
func lineEnd(text string, at int) int {
	line := text[at:]
	if end := strings.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	line = strings.TrimSuffix(line, "\r")
	rest := strings.TrimLeft(line, " \t")
	blockEnd := strings.Index(rest, "*/")
	if strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") && blockEnd >= 0 && strings.TrimSpace(rest[blockEnd+2:]) == "" {
		return at + len(line)
	}
	return at
}
