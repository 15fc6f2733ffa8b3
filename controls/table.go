package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// table is one file of rows.
type table struct {
	room     string
	Controls []control `toml:"control"`
	Shown    []shown   `toml:"shown"`
}

// change is one text of one file and what it becomes.
type change struct {
	File string `toml:"file"`
	Old  string `toml:"old"`
	New  string `toml:"new"`
}

type control struct {
	room string
	Name string `toml:"name"`
	change
	Also    []change `toml:"also"`
	Package string   `toml:"package"`
	Tests   []string `toml:"tests"`
}

// shown is an attack that cannot be refused, and where it is seen instead.
type shown struct {
	Test  string `toml:"test"`
	Where string `toml:"where"`
}

func (c control) changes() []change { return append([]change{c.change}, c.Also...) }

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// readTables reads every file of rows; a row that says too little is an error.
func readTables(root string) ([]table, error) {
	paths, err := filepath.Glob(filepath.Join(root, "controls", "*.toml"))
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, path := range paths {
		t, err := readTable(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func readTable(path string) (table, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return table{}, err
	}
	return parseTable(strings.TrimSuffix(filepath.Base(path), ".toml"), text)
}

func parseTable(room string, text []byte) (table, error) {
	t := table{room: room}
	d := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		if strict, ok := err.(*toml.StrictMissingError); ok {
			return table{}, fmt.Errorf("unknown keys:\n%s", strict.String())
		}
		return table{}, err
	}
	for i := range t.Controls {
		t.Controls[i].room = t.room
		if err := t.Controls[i].check(); err != nil {
			return table{}, fmt.Errorf("control %q: %w", t.Controls[i].Name, err)
		}
	}
	for _, s := range t.Shown {
		if s.Test == "" || s.Where == "" {
			return table{}, fmt.Errorf("shown %q: test and where are needed", s.Test)
		}
	}
	return t, nil
}

var testName = regexp.MustCompile(`^Test[A-Z0-9_][A-Za-z0-9_]*$`)

func (c control) check() error {
	switch {
	case c.Name == "":
		return fmt.Errorf("it has no name")
	case c.Package != "." && !strings.HasPrefix(c.Package, "./"):
		return fmt.Errorf("package %q is not a path that begins with ./", c.Package)
	case len(c.Tests) == 0:
		return fmt.Errorf("it names no test")
	}
	for _, name := range c.Tests {
		if !testName.MatchString(name) {
			return fmt.Errorf("%q is not the name of a test", name)
		}
	}
	for _, change := range c.changes() {
		if change.File == "" || change.Old == "" || change.Old == change.New {
			return fmt.Errorf("file, old and a new that differs are needed")
		}
		if !filepath.IsLocal(change.File) {
			return fmt.Errorf("file %q lies outside of the tree", change.File)
		}
	}
	return nil
}

// changed returns the files of a row as they are with the control removed.
func (c control) changed(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, change := range c.changes() {
		text, ok := files[change.File]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, change.File)); err != nil {
				return nil, err
			}
		}
		if n := bytes.Count(text, []byte(change.Old)); n != 1 {
			return nil, fmt.Errorf("%s: the old text stands there %d times, not once: %q", change.File, n, change.Old)
		}
		files[change.File] = bytes.Replace(text, []byte(change.Old), []byte(change.New), 1)
	}
	return files, nil
}
