package ambient

import (
	"bytes"
	"regexp"
	"strings"
)

// Why a value is left where it is. Tools read such a text in different ways, or
// the value goes on where its line ends.
const (
	quotesOpen  = "its quotes do not close on its line"
	continued   = "it goes on in the next line"
	inAnother   = "it stands inside the value of another line"
	expansion   = "a shell computes a part of it"
	escapes     = "it has escapes"
	oddQuotes   = "tools read its quotes in different ways"
	oddComment  = "tools read what follows it in different ways"
	standsTwice = "it stands twice in the file"
	severalOf   = "it is not a plain value"
)

// openQuote is the quote that is open at the end of a text as a shell reads it,
// ')' for a command whose parenthesis is open, and 0 for none.
func openQuote(text []byte, open byte) byte {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && open != '\'':
			i++
		case open == 0 && (c == '"' || c == '\'' || c == '`'):
			open = c
		case open == 0 && c == '(' && i > 0 && text[i-1] == '$':
			open = ')'
		case open == 0 && c == '#' && i > 0 && (text[i-1] == ' ' || text[i-1] == '\t'):
			return 0
		case open != 0 && c == open:
			open = 0
		}
	}
	return open
}

// reference is a value that is another variable's.
var reference = regexp.MustCompile(`^"?\$(\w+|\{\w+\})"?$`)

// isQuotedOver reports whether a value is in quotes that a later line closes.
func isQuotedOver(value, rest []byte) bool {
	value = bytes.TrimSpace(value)
	open := openQuote(value, 0)
	if open == 0 || bytes.IndexByte(rest, open) < 0 {
		return false
	}
	return value[0] == open || open == ')' && bytes.HasPrefix(value, []byte("$("))
}

// endsInBackslash reports whether a shell reads the next line as a part of this.
func endsInBackslash(line []byte) bool {
	return (len(line)-len(bytes.TrimRight(line, `\`)))%2 == 1
}

// shellObstacle says why the value of a line cannot be moved, where shells and
// the libraries of dotenv could read it in different ways.
func shellObstacle(value []byte) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return ""
	}
	switch open := openQuote(value, 0); {
	case open != 0:
		return quotesOpen
	case endsInBackslash(value):
		return continued
	}
	if q := value[0]; q == '"' || q == '\'' {
		return quotedObstacle(value, q == '"')
	}
	if i := bytes.Index(value, []byte(" #")); i >= 0 {
		value = bytes.TrimSpace(value[:i])
	}
	switch text := string(value); {
	case strings.ContainsAny(text, "`$"):
		return expansion
	case strings.ContainsAny(text, `"'`):
		return oddQuotes
	case strings.Contains(text, `\`):
		return escapes
	case strings.ContainsAny(text, " \t#;|<>()") || strings.Contains(text, "&&"):
		return oddComment
	}
	return ""
}

// quotedObstacle looks at a value in quotes and at what follows it.
func quotedObstacle(value []byte, expands bool) string {
	end := bytes.IndexByte(value[1:], value[0])
	if end < 0 {
		return quotesOpen
	}
	inner, after := value[1:1+end], bytes.TrimSpace(value[end+2:])
	switch {
	case expands && bytes.ContainsAny(inner, "$`"):
		return expansion
	case expands && bytes.Contains(inner, []byte(`\`)) || bytes.HasSuffix(inner, []byte(`\`)):
		return escapes
	case len(inner) == 0 && len(after) > 0 || len(after) > 0 && after[0] != '#':
		return oddQuotes
	}
	return ""
}

// plainObstacle is for formats without a shell: ini, toml, npmrc, yaml, hcl.
// comments are what starts a comment for some of their readers.
func plainObstacle(value []byte, comments ...string) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return ""
	}
	switch {
	case bytes.HasPrefix(value, []byte(`"""`)) || bytes.HasPrefix(value, []byte("'''")):
		return quotesOpen
	case value[0] == '"' || value[0] == '\'':
		if o := quotedObstacle(value, false); o != "" {
			return o
		}
		if value[0] == '"' && bytes.Contains(value, []byte(`\`)) {
			return escapes
		}
	case value[0] == '`' || bytes.HasPrefix(value, []byte("$(")):
		return expansion
	case endsInBackslash(value):
		return continued
	default:
		for _, c := range comments {
			if bytes.Contains(value, []byte(c)) {
				return oddComment
			}
		}
	}
	if bytes.Contains(value, []byte("${")) || bytes.Contains(value, []byte("$(")) {
		return expansion
	}
	return ""
}

// span follows a value over lines: until its quotes close, or while lines are
// indented more than the one it began on.
type span struct {
	mark   []byte // that ends it; nil for none
	indent int    // of the line of the last key; -1 for none
}

// holds reports whether a line belongs to the value of an earlier one.
func (s *span) holds(line []byte, indent int) bool {
	if s.mark != nil {
		if bytes.Contains(line, s.mark) {
			s.mark = nil
		}
		return true
	}
	return s.indent >= 0 && indent > s.indent && len(line) > 0
}

// begin notes a value that may go on after its line.
func (s *span) begin(value []byte, indent int) {
	s.indent, s.mark = indent, nil
	value = bytes.TrimSpace(value)
	for _, q := range []string{`"""`, "'''", `"`, "'"} {
		if rest, ok := bytes.CutPrefix(value, []byte(q)); ok {
			if !bytes.Contains(rest, []byte(q)) {
				s.mark = []byte(q)
			}
			return
		}
	}
}

func indentOf(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t")) }

// markTwice marks values of a name that stands more than once: which of them
// counts, each tool says for itself.
func markTwice(all []entry) {
	type name struct {
		section, key string
		scope        int
	}
	count := map[name]int{}
	for _, e := range all {
		count[name{e.section, e.key, e.scope}]++
	}
	for i, e := range all {
		if count[name{e.section, e.key, e.scope}] > 1 && e.obstacle == "" {
			all[i].obstacle = standsTwice
		}
	}
}

// withoutUser cuts user and password out of a URL or a host. Where it is not
// sure what belongs to them, nothing is left.
func withoutUser(s string) string {
	start := 0
	if i := strings.Index(s, "//"); i >= 0 {
		start = i + 2
	}
	scheme, rest := s[:start], s[start:]
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") || strings.Contains(scheme, "@") {
		return "?"
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		return scheme + rest[i+1:]
	}
	return s
}
