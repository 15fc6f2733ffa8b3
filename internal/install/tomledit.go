package install

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlDocument is a TOML text that is edited in place by whole tables and by
// single values.
type tomlDocument struct {
	text string
	all  map[string]any
}

func openTOML(text string) (*tomlDocument, error) {
	all := map[string]any{}
	if err := toml.Unmarshal([]byte(text), &all); err != nil {
		var damage *toml.DecodeError
		if errors.As(err, &damage) {
			line, column := damage.Position()
			return nil, &SyntaxError{Line: line, Column: column, Why: strings.TrimPrefix(damage.Error(), "toml: ")}
		}
		return nil, err
	}
	return &tomlDocument{text: text, all: all}, nil
}

func (d *tomlDocument) replace(text string) error {
	changed, err := openTOML(text)
	if err != nil {
		return fmt.Errorf("the edit would damage the file: %w", err)
	}
	*d = *changed
	return nil
}

// table is the table at path, nil if there is none.
func (d *tomlDocument) table(path []string) (map[string]any, error) {
	at := d.all
	for i, name := range path {
		v, there := at[name]
		if !there {
			return nil, nil
		}
		next, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%q is not a table", strings.Join(path[:i+1], "."))
		}
		at = next
	}
	return at, nil
}

// part is one header or one key of the text, with the table that it is in.
type part struct {
	header   bool
	path     []string // of the table; of a key, with the key
	line     int      // where its line begins
	value    unstable.Range
	isString bool
}

// parts are the headers and keys of the text, in order.
func (d *tomlDocument) parts() ([]part, error) {
	var p unstable.Parser
	p.Reset([]byte(d.text))
	var all []part
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		var path []string
		at := -1
		for keys := e.Key(); keys.Next(); {
			if at < 0 {
				at = int(keys.Node().Raw.Offset)
			}
			path = append(path, string(keys.Node().Data))
		}
		line := strings.LastIndexByte(d.text[:max(at, 0)], '\n') + 1
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = path
			all = append(all, part{header: true, path: path, line: line})
		case unstable.KeyValue:
			v := e.Value()
			all = append(all, part{path: slices.Concat(table, path), line: line, value: v.Raw, isString: v.Kind == unstable.String})
		}
	}
	return all, p.Error()
}

// addTable puts a table behind the end of the text.
func (d *tomlDocument) addTable(path []string, lines []string) error {
	newline := "\n"
	if strings.Contains(d.text, "\r\n") {
		newline = "\r\n"
	}
	text := d.text
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += newline
	}
	if text != "" {
		text += newline
	}
	text += "[" + strings.Join(path, ".") + "]" + newline
	for _, line := range lines {
		text += line + newline
	}
	if err := d.replace(text); err != nil {
		return fmt.Errorf("%q is written in a way that no table can follow: %w", strings.Join(path[:len(path)-1], "."), err)
	}
	return nil
}

// set gives a key of a table that has a header of its own another value, or
// adds it behind the header.
func (d *tomlDocument) set(table []string, name, value string) error {
	parts, err := d.parts()
	if err != nil {
		return err
	}
	for _, p := range parts {
		if !p.header && slices.Equal(p.path, append(slices.Clone(table), name)) && p.isString {
			from, to := int(p.value.Offset), int(p.value.Offset+p.value.Length)
			return d.replace(d.text[:from] + value + d.text[to:])
		}
	}
	for i, p := range parts {
		if p.header && slices.Equal(p.path, table) {
			at := p.line + strings.IndexByte(d.text[p.line:]+"\n", '\n')
			for _, key := range parts[i+1:] { // behind the keys that are there
				if key.header {
					break
				}
				at = int(key.value.Offset+key.value.Length) + strings.IndexByte(d.text[key.value.Offset+key.value.Length:]+"\n", '\n')
			}
			return d.replace(d.text[:at] + "\n" + name + " = " + value + d.text[at:])
		}
	}
	return fmt.Errorf("%q is written without a header of its own", strings.Join(table, "."))
}

// removeKey takes a key of a table away, with its line.
func (d *tomlDocument) removeKey(path []string) (bool, error) {
	parts, err := d.parts()
	if err != nil {
		return false, err
	}
	for _, p := range parts {
		if !p.header && slices.Equal(p.path, path) {
			end := int(p.value.Offset + p.value.Length)
			end += strings.IndexByte(d.text[end:]+"\n", '\n') + 1
			return true, d.replace(d.text[:p.line] + d.text[min(end, len(d.text)):])
		}
	}
	return false, nil
}

// removeTable takes a table away that has headers of its own, with the tables
// below it and the blank line above it.
func (d *tomlDocument) removeTable(path []string) (bool, error) {
	found := false
	for {
		parts, err := d.parts()
		if err != nil {
			return found, err
		}
		within := func(p part) bool {
			return p.header && len(p.path) >= len(path) && slices.Equal(p.path[:len(path)], path)
		}
		i := slices.IndexFunc(parts, within)
		if i < 0 {
			break
		}
		found = true
		end := len(d.text)
		for _, next := range parts[i+1:] {
			if next.header {
				end = leadOf(d.text, next.line)
				break
			}
		}
		start := parts[i].line
		for _, blank := range []string{"\n\r\n", "\n\n"} {
			if strings.HasSuffix(d.text[:start], blank) {
				start -= len(blank) - 1
				break
			}
		}
		if start == 0 {
			end += len(d.text[end:]) - len(strings.TrimLeft(d.text[end:], "\r\n"))
		}
		if err := d.replace(d.text[:start] + d.text[end:]); err != nil {
			return found, err
		}
	}
	if left, err := d.table(path); err != nil || left == nil {
		return found, err
	}
	return found, fmt.Errorf("%q is written without a header of its own", strings.Join(path, "."))
}

// leadOf is where the comments and blank lines above a line begin: they belong
// to what follows them.
func leadOf(text string, line int) int {
	for line > 0 {
		above := strings.LastIndexByte(text[:line-1], '\n') + 1
		if s := strings.TrimSpace(text[above : line-1]); s != "" && !strings.HasPrefix(s, "#") {
			break
		}
		line = above
	}
	return line
}
