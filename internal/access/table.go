package access

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// table reads one table of the file key by key and reports what nobody read.
type table struct {
	doc    *document
	path   []string
	values map[string]any
	known  []string
}

// text is a string of the file and where it stands.
type text struct {
	value string
	line  int
}

// section returns the tables below a top-level key, in order of name.
func (d *document) section(name string) []*table {
	value, ok := d.values[name]
	if !ok {
		return nil
	}
	all, ok := value.(map[string]any)
	if !ok {
		d.add(d.line(name), name, "must be a table of tables")
		return nil
	}
	var out []*table
	for _, key := range slices.Sorted(maps.Keys(all)) {
		values, ok := all[key].(map[string]any)
		if !ok {
			d.add(d.line(name, key), keyText(name, key), "must be a table")
			continue
		}
		out = append(out, &table{doc: d, path: []string{name, key}, values: values})
	}
	return out
}

func (t *table) name() string { return t.path[len(t.path)-1] }

func (t *table) line(key string) int { return t.doc.line(append(slices.Clone(t.path), key)...) }

// problem reports on one key of the table, or on the table if key is empty.
func (t *table) problem(key, format string, args ...any) {
	if key == "" {
		t.doc.add(t.doc.line(t.path...), keyText(t.path...), format, args...)
		return
	}
	t.problemAt(t.line(key), key, format, args...)
}

func (t *table) problemAt(line int, key, format string, args ...any) {
	t.doc.add(line, keyText(append(slices.Clone(t.path), key)...), format, args...)
}

func (t *table) take(key string) (any, bool) {
	t.known = append(t.known, key)
	v, ok := t.values[key]
	return v, ok
}

// required reads a string that must be there.
func (t *table) required(key string) (string, bool) {
	s, ok := t.optional(key)
	if ok && s != "" {
		return s, true
	}
	switch _, present := t.values[key]; {
	case !present:
		t.problem("", "%s is missing", key)
	case ok:
		t.problem(key, "must not be empty")
	}
	return "", false
}

func (t *table) optional(key string) (string, bool) {
	v, ok := t.take(key)
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	if !ok {
		t.problem(key, "must be a string")
	}
	return s, ok
}

func (t *table) boolean(key string) bool {
	v, ok := t.take(key)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		t.problem(key, "must be true or false")
	}
	return b
}

// list reads an array of strings; nil means that it is not there.
func (t *table) list(key string) []text {
	v, ok := t.take(key)
	if !ok {
		return nil
	}
	elements, ok := v.([]any)
	if !ok {
		t.problem(key, "must be an array of strings")
		return nil
	}
	out := make([]text, 0, len(elements))
	seen := map[string]bool{}
	for i, e := range elements {
		line := t.doc.line(append(slices.Clone(t.path), key, strconv.Itoa(i))...)
		s, ok := e.(string)
		switch {
		case !ok:
			t.problemAt(line, key, "must be an array of strings")
		case seen[s]:
			t.problemAt(line, key, "element %d is there twice", i+1)
		default:
			seen[s] = true
			out = append(out, text{s, line})
		}
	}
	return out
}

// requiredList reads an array that must not be empty.
func (t *table) requiredList(key string) []text {
	value, present := t.values[key]
	if elements, ok := value.([]any); ok && len(elements) == 0 {
		t.problem(key, "must not be empty")
	} else if !present {
		t.problem("", "%s is missing", key)
	}
	return t.list(key)
}

// finish reports the keys that nobody asked for.
func (t *table) finish() {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if slices.Contains(t.known, key) {
			continue
		}
		message := "unknown key"
		lower := strings.ToLower(key)
		switch {
		case slices.Contains(t.known, lower):
			message = "unknown key (keys are written in lower case)"
		case slices.Contains(secretKeys, lower):
			message = "unknown key: no secret stands in this file"
		}
		t.problem(key, "%s", message)
	}
}

// secretKeys are where people put values that do not belong in the file.
var secretKeys = []string{"value", "secret", "token", "password", "passphrase", "api_key", "apikey", "private_key", "bearer",
	"client_secret", "refresh_token", "access_token", "secret_access_key"}
