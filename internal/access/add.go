package access

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Add returns the text of an access file with the tables of part behind it.
// part must be a good file by itself: it refers to nothing outside of it. Nothing
// in the file is replaced: a table of part that the file has word for word is left
// out, and one that says something else there is a problem, with its line in
// part. If the file has all of it, it is returned as it is.
func Add(file, part []byte) ([]byte, error) {
	has, err := Parse(file)
	if err != nil {
		return nil, fmt.Errorf("reading the file that is added to: %w", err)
	}
	more, err := Parse(part)
	if err != nil {
		return nil, err
	}
	all, after := has.describe(), more.describe()
	doc := readDocument(part) // for lines
	fresh := map[int]bool{}   // whether the table that begins in a line is added
	for section, tables := range after {
		for name, says := range tables {
			line := doc.line(section, name)
			there, ok := all[section][name]
			if ok && !slices.Equal(there, says) {
				doc.add(line, keyText(section, name), "is applied already, and says something else")
			}
			fresh[line] = !ok
			all[section][name] = says
		}
	}
	if len(doc.problems) > 0 {
		return nil, doc.sorted()
	}
	if !slices.Contains(slices.Collect(maps.Values(fresh)), true) {
		return file, nil
	}
	text := bytes.TrimRight(file, "\n")
	if len(text) > 0 {
		text = append(bytes.Clone(text), "\n\n"...)
	}
	text = append(text, tablesOf(part, fresh)...)
	sum, err := Parse(text)
	if err == nil && !sum.says(all) {
		err = errors.New("the tables cannot be told apart in the text: write each under a heading of its own")
	}
	return text, err
}

// tablesOf is the text without the tables that are not wanted; wanted has the line
// in which each table begins.
func tablesOf(text []byte, wanted map[int]bool) (kept []byte) {
	keep, n := true, 0
	for line := range bytes.Lines(text) {
		n++
		if begins, ok := wanted[n]; ok {
			keep = begins
		}
		if keep {
			kept = append(kept, line...)
		}
	}
	return kept
}

// says reports whether a file says exactly this.
func (p *Policy) says(all map[string]map[string]entry) bool {
	return maps.EqualFunc(p.describe(), all, func(a, b map[string]entry) bool {
		return maps.EqualFunc(a, b, func(a, b entry) bool { return slices.Equal(a, b) })
	})
}
