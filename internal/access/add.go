package access

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Add returns the text of an access file with the tables of part behind it.
// part must be a good file by itself: it refers to nothing outside of it. If
// the file says all of it already, the file is returned as it is; otherwise a
// name of part that the file has is a problem, with its line in part. Nothing
// in the file is replaced.
func Add(file, part []byte) ([]byte, error) {
	has, err := Parse(file)
	if err != nil {
		return nil, fmt.Errorf("reading the file that is added to: %w", err)
	}
	more, err := Parse(part)
	if err != nil {
		return nil, err
	}
	before, after := has.describe(), more.describe()
	doc := readDocument(part) // for the lines of its problems
	same := true
	for _, section := range []string{"credential", "host", "capability"} {
		for _, name := range slices.Sorted(maps.Keys(after[section])) {
			there, ok := before[section][name]
			same = same && ok && slices.Equal(there, after[section][name])
			if ok {
				doc.add(doc.line(section, name), keyText(section, name), "is applied already")
			}
		}
	}
	if same {
		return file, nil
	}
	if len(doc.problems) > 0 {
		return nil, doc.sorted()
	}
	text := bytes.TrimRight(file, "\n")
	if len(text) > 0 {
		text = append(bytes.Clone(text), "\n\n"...)
	}
	text = append(text, part...)
	_, err = Parse(text)
	return text, err
}
