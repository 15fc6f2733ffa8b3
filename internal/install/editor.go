package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// editor edits the text of a configuration, whatever its format. Values are
// JSON texts.
type editor interface {
	// get is the value at a path, as plain JSON.
	get(path []string) (value string, found bool, err error)
	// put sets the value at a path and returns how many containers it made.
	put(path []string, value string) (made int, err error)
	putElement(path []string, value string) (made int, err error)
	take(a addition) (found bool, err error)
	blank() bool // nothing is left in it, no comment either
	String() string
}

func openEditor(text string, format Format) (editor, error) {
	if format == formatTOML {
		d, err := openTOML(text)
		return tomlEditor{d}, err
	}
	d, err := openDocument(text, format)
	return jsonEditor{d}, err
}

type jsonEditor struct{ *document }

func (e jsonEditor) get(path []string) (string, bool, error) {
	n, err := e.value(path)
	if err != nil || n == nil {
		return "", false, err
	}
	return e.plain(n), true, nil
}

// plain is a value without comments and trailing commas.
func (d *document) plain(n *node) string {
	if n.kind != objectKind && n.kind != arrayKind {
		return d.raw(n)
	}
	var parts []string
	for _, it := range n.items {
		part := d.plain(it.value)
		if n.kind == objectKind {
			part = quote(it.name) + ":" + part
		}
		parts = append(parts, part)
	}
	if n.kind == objectKind {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func (e jsonEditor) put(path []string, value string) (int, error) {
	if n, err := e.value(path); err != nil || n != nil {
		if err != nil {
			return 0, err
		}
		return 0, e.set(path, value)
	}
	return e.add(path, value)
}

func (e jsonEditor) putElement(path []string, value string) (int, error) {
	return e.addElement(path, value)
}

func (e jsonEditor) take(a addition) (bool, error) {
	if a.Was != "" {
		n, err := e.value(a.At)
		if err != nil || n == nil {
			return false, err
		}
		return true, e.set(a.At, a.Was)
	}
	return e.remove(a.At, a.Element, a.Made)
}

func (e jsonEditor) blank() bool {
	left := strings.TrimSpace(e.text)
	return left == "" || left == "{}"
}

func (e jsonEditor) String() string { return e.text }

// tomlEditor edits tables two names deep and their keys, which is what clients
// have.
type tomlEditor struct{ *tomlDocument }

func (e tomlEditor) get(path []string) (string, bool, error) {
	above, err := e.table(path[:len(path)-1])
	if err != nil || above == nil {
		return "", false, err
	}
	v, found := above[path[len(path)-1]]
	if !found {
		return "", false, nil
	}
	value, err := json.Marshal(v)
	return string(value), true, err
}

func (e tomlEditor) put(path []string, value string) (int, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &members) != nil {
		return 0, e.set(path[:len(path)-1], path[len(path)-1], value)
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		lines = append(lines, name+" = "+string(members[name]))
	}
	return 0, e.addTable(path, lines)
}

func (e tomlEditor) putElement(path []string, _ string) (int, error) {
	return 0, fmt.Errorf("%s: arrays of TOML are not edited", strings.Join(path, "."))
}

func (e tomlEditor) take(a addition) (bool, error) {
	v, found, err := e.get(a.At)
	if err != nil || !found {
		return false, err
	}
	if strings.HasPrefix(v, "{") {
		return e.removeTable(a.At)
	}
	if a.Was != "" {
		return true, e.set(a.At[:len(a.At)-1], a.At[len(a.At)-1], a.Was)
	}
	return e.removeKey(a.At)
}

func (e tomlEditor) blank() bool    { return strings.TrimSpace(e.text) == "" }
func (e tomlEditor) String() string { return e.text }
