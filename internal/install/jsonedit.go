package install

import (
	"fmt"
	"slices"
	"strings"
)

// document is a JSON text that is edited in place: what an edit does not name
// keeps every byte.
type document struct {
	text   string
	format Format
	root   *node // nil for a text of blanks and comments
}

func openDocument(text string, format Format) (*document, error) {
	root, err := parseJSON(text, format)
	if err != nil {
		return nil, err
	}
	if root != nil && root.kind != objectKind {
		return nil, syntaxError(text, root.start, "this is not an object")
	}
	return &document{text: text, format: format, root: root}, nil
}

// replace puts a new text in place and reads it, so that no edit leaves one
// that its client could not read.
func (d *document) replace(text string) error {
	changed, err := openDocument(text, d.format)
	if err != nil {
		return fmt.Errorf("the edit would damage the file: %w", err)
	}
	*d = *changed
	return nil
}

// find follows path as far as it goes: the last value on it, and how many of
// the names it has.
func (d *document) find(path []string) (n *node, depth int, err error) {
	if d.root == nil {
		return nil, 0, nil
	}
	n = d.root
	for depth < len(path) {
		if n.kind != objectKind {
			return nil, 0, syntaxError(d.text, n.start, fmt.Sprintf("%q is not an object", path[depth-1]))
		}
		at := -1
		for i, it := range n.items {
			if it.name != path[depth] {
				continue
			}
			if at >= 0 {
				return nil, 0, syntaxError(d.text, it.start, fmt.Sprintf("%q stands here a second time", it.name))
			}
			at = i
		}
		if at < 0 {
			break
		}
		n = n.items[at].value
		depth++
	}
	return n, depth, nil
}

// value is what stands at path, nil if nothing does.
func (d *document) value(path []string) (*node, error) {
	n, depth, err := d.find(path)
	if err != nil || depth < len(path) {
		return nil, err
	}
	return n, nil
}

// raw is the text of a value.
func (d *document) raw(n *node) string { return d.text[n.start:n.end] }

// add puts value, a JSON text, at path, where nothing is yet. It makes the
// objects that are missing above it and returns how many.
func (d *document) add(path []string, value string) (made int, err error) {
	n, depth, err := d.find(path)
	if err != nil {
		return 0, err
	}
	if depth == len(path) {
		return 0, fmt.Errorf("there is a value at %s already", strings.Join(path, "."))
	}
	if n != nil && n.kind != objectKind {
		return 0, syntaxError(d.text, n.start, fmt.Sprintf("%q is not an object", path[depth-1]))
	}
	for i := len(path) - 1; i > depth; i-- {
		value = "{" + quote(path[i]) + ":" + value + "}"
	}
	made = len(path) - 1 - depth
	if n == nil {
		return made, d.replace(d.text + d.style().render(`{`+quote(path[0])+`:`+value+`}`, "") + d.style().newline)
	}
	return made, d.insert(n, quote(path[depth]), value)
}

// addElement puts value behind the last element of the array at path, which it
// makes if there is none. made counts it and the objects made for it.
func (d *document) addElement(path []string, value string) (made int, err error) {
	n, err := d.value(path)
	if err != nil {
		return 0, err
	}
	if n == nil {
		made, err = d.add(path, "["+value+"]")
		return made + 1, err
	}
	if n.kind != arrayKind {
		return 0, syntaxError(d.text, n.start, fmt.Sprintf("%q is not an array", path[len(path)-1]))
	}
	return 0, d.insert(n, "", value)
}

// set replaces the value at path.
func (d *document) set(path []string, value string) error {
	n, err := d.value(path)
	if err != nil {
		return err
	}
	if n == nil {
		_, err := d.add(path, value)
		return err
	}
	s := d.style()
	return d.replace(d.text[:n.start] + s.render(value, indentOf(d.text, n.start)) + d.text[n.end:])
}

// remove takes away what add or addElement put there: the value at path, or of
// an array there the element that is equal to element; then, of the containers
// above that are empty by now, at most made. It reports whether there was one.
func (d *document) remove(path []string, element string, made int) (bool, error) {
	if element == "" {
		found, err := d.removeItem(path[:len(path)-1], func(it item) bool { return it.name == path[len(path)-1] })
		if err != nil || !found {
			return found, err
		}
		path = path[:len(path)-1]
	} else {
		found, err := d.removeItem(path, func(it item) bool { return compact(d.raw(it.value)) == compact(element) })
		if err != nil || !found {
			return found, err
		}
	}
	for ; made > 0 && len(path) > 0; made-- {
		n, err := d.value(path)
		if err != nil {
			return true, err
		}
		if n == nil || len(n.items) > 0 || d.raw(n) != "{}" && d.raw(n) != "[]" {
			break // somebody uses it, or wrote a comment in it
		}
		name := path[len(path)-1]
		path = path[:len(path)-1]
		if _, err := d.removeItem(path, func(it item) bool { return it.name == name }); err != nil {
			return true, err
		}
	}
	return true, nil
}

func (d *document) removeItem(path []string, is func(item) bool) (bool, error) {
	n, err := d.value(path)
	if err != nil || n == nil || n.kind != objectKind && n.kind != arrayKind {
		return false, err
	}
	i := slices.IndexFunc(n.items, is)
	if i < 0 {
		return false, nil
	}
	return true, d.replace(d.without(n, i))
}

// insert puts an item behind the last one of n, in the style of those that are
// there.
func (d *document) insert(n *node, name, value string) error {
	s := d.style()
	if name != "" {
		name += ": "
	}
	closing := indentOf(d.text, n.start)
	if len(n.items) == 0 {
		return d.replace(d.intoEmpty(n, s, name, value, closing))
	}
	last := n.items[len(n.items)-1]
	own, indent := ownLine(d.text, last.start)
	if !own { // several on one line, or a text of one line
		s.compact = true
		at, between, behind := last.value.end, ", ", ""
		if last.comma >= 0 {
			at, between, behind = last.comma+1, " ", ","
		}
		return d.replace(d.text[:at] + between + name + s.render(value, "") + behind + d.text[at:])
	}
	block := s.newline + indent + name + s.render(value, indent)
	if last.comma >= 0 {
		at := lineEnd(d.text, last.comma+1)
		return d.replace(d.text[:at] + block + "," + d.text[at:])
	}
	at := lineEnd(d.text, last.value.end)
	return d.replace(d.text[:last.value.end] + "," + d.text[last.value.end:at] + block + d.text[at:])
}

func (d *document) intoEmpty(n *node, s style, name, value, closing string) string {
	inner := d.text[n.start+1 : n.end-1]
	indent := closing + s.unit
	switch {
	case s.compact:
		return d.text[:n.start+1] + name + s.render(value, "") + d.text[n.start+1:]
	case strings.Contains(inner, "\n"): // behind a comment, if there is one
		at := n.start + 1 + len(strings.TrimRight(inner, " \t\r\n"))
		return d.text[:at] + s.newline + indent + name + s.render(value, indent) + d.text[at:]
	}
	return d.text[:n.end-1] + s.newline + indent + name + s.render(value, indent) + s.newline + closing + d.text[n.end-1:]
}

// without is the text without the item i of n and without what held it.
func (d *document) without(n *node, i int) string {
	it := n.items[i]
	from, to := len(strings.TrimRight(d.text[:it.start], " \t\r\n")), it.value.end
	last := i == len(n.items)-1
	if it.comma >= 0 {
		to = it.comma + 1
	}
	// Never join what follows to the end of a comment's line.
	if strings.Contains(d.text[from:it.start], "\n") && !strings.HasPrefix(strings.TrimLeft(d.text[to:], " \t\r"), "\n") {
		from = it.start
	}
	text := d.text[:from] + d.text[to:]
	if last && i > 0 && it.comma < 0 { // the comma before it goes too
		comma := n.items[i-1].comma
		text = text[:comma] + text[comma+1:]
	}
	if len(n.items) == 1 {
		inner := strings.TrimRight(d.text[:from], " \t\r\n")
		if rest := strings.TrimLeft(d.text[to:], " \t\r\n"); len(inner) == n.start+1 && len(d.text)-len(rest) == n.end-1 {
			text = inner + rest // nothing is left in it
		}
	}
	return text
}
