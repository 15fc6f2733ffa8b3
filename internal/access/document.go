package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxFile and maxKeys bound an access file. The second is there because the
// decoder looks for duplicates among all keys of a table, one by one.
const (
	maxFile = 1 << 20
	maxKeys = 10_000
)

// document is a TOML file, its values, and the line of each key. Values come
// as a tree and not through struct tags, because struct decoding matches keys
// without regard to case.
type document struct {
	values   map[string]any
	lines    map[string]int
	keys     int // seen by readLines
	problems Problems
}

func readDocument(data []byte) *document {
	d := &document{lines: map[string]int{}}
	if len(data) > maxFile {
		d.add(1, "", "file is longer than %d bytes", maxFile)
		return d
	}
	if d.readLines(data); d.keys > maxKeys {
		d.add(1, "", "file has more than %d keys", maxKeys)
		return d
	}
	if err := toml.Unmarshal(data, &d.values); err != nil {
		line := 1
		var de *toml.DecodeError
		if errors.As(err, &de) {
			line, _ = de.Position()
		}
		d.add(line, "", "%s", clip(strings.TrimPrefix(err.Error(), "toml: ")))
		return d
	}
	return d
}

func (d *document) add(line int, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: line, Key: key, Message: fmt.Sprintf(format, args...)})
}

// maxProblems bounds what is reported of one file.
const maxProblems = 100

// sorted returns the problems by line.
func (d *document) sorted() Problems {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Message, b.Message))
	})
	all := slices.Compact(d.problems)
	if more := len(all) - maxProblems; more > 0 {
		return append(all[:maxProblems:maxProblems], Problem{Line: all[maxProblems].Line, Message: fmt.Sprintf("and %d more problems from here on", more)})
	}
	return all
}

// clip bounds text of the file that a problem repeats, and keeps it from
// steering a terminal.
func clip(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return s
}

// readLines notes where each key, table and list element stands. It stops
// silently at what is not TOML: decoding reports that.
func (d *document) readLines(data []byte) {
	var starts []int
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	lineOf := func(r unstable.Range) int { return 1 + sort.SearchInts(starts, int(r.Offset)+1) }
	var parser unstable.Parser
	parser.Reset(data)
	var table []string
	for parser.NextExpression() {
		e := parser.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = d.noteKeys(nil, e.Key(), lineOf)
		case unstable.KeyValue:
			d.noteValue(table, e, lineOf)
		}
	}
}

// maxNoted is how deep keys are noted: one more than a good file has. Without
// a bound a dotted key of a megabyte would cost its length squared.
const maxNoted = 4

func (d *document) noteKeys(path []string, keys unstable.Iterator, lineOf func(unstable.Range) int) []string {
	d.keys++
	path = slices.Clone(path)
	for keys.Next() && len(path) < maxNoted {
		path = append(path, string(keys.Node().Data))
		d.note(path, lineOf(keys.Node().Raw))
	}
	return path
}

func (d *document) noteValue(path []string, kv *unstable.Node, lineOf func(unstable.Range) int) {
	path = d.noteKeys(path, kv.Key(), lineOf)
	value := kv.Value()
	switch value.Kind {
	case unstable.InlineTable:
		for members := value.Children(); members.Next(); {
			if m := members.Node(); m.Kind == unstable.KeyValue {
				d.noteValue(path, m, lineOf)
			}
		}
	case unstable.Array:
		i := 0
		for elements := value.Children(); elements.Next(); {
			e := elements.Node()
			if e.Kind == unstable.Comment {
				continue
			}
			if e.Kind == unstable.String {
				d.note(append(slices.Clone(path), strconv.Itoa(i)), lineOf(e.Raw))
			}
			i++
		}
	}
}

// note keeps the first line of a path: a table that is opened again keeps its
// heading.
func (d *document) note(path []string, line int) {
	key := strings.Join(path, "\x00")
	if _, ok := d.lines[key]; !ok {
		d.lines[key] = line
	}
}

// line is the line of a path, or of the nearest part of it that has one.
func (d *document) line(path ...string) int {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if n, ok := d.lines[strings.Join(path, "\x00")]; ok {
			return n
		}
	}
	return 1
}

// keyText writes a path as TOML would.
func keyText(path ...string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = p
		bare := func(c rune) bool {
			return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		}
		if p == "" || strings.ContainsFunc(p, func(c rune) bool { return !bare(c) }) {
			parts[i] = strconv.QuoteToASCII(p)
		}
		if len(parts[i]) > 200 {
			parts[i] = parts[i][:200] + "..."
		}
	}
	return strings.Join(parts, ".")
}
