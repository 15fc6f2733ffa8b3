package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// smallTree is a module with one package, two tests and a row for each.
func smallTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module m\n\ngo 1.26\n",
		"x/x.go":           "package x\n\nfunc A() int { return 1 }\n",
		"x/y.go":           "package x\n\nfunc B() int { return 2 }\n",
		"x/a_test.go":      "package x\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n\tif A() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
		"x/b_test.go":      "package x\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) { B() }\n",
		"controls/x.toml":  row("a", "x/x.go", "return 1", "TestA"),
		"controls/x2.toml": row("b", "x/y.go", "return 2", "TestB"),
	} {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func row(name, file, old, test string) string {
	return "[[control]]\nname='" + name + "'\nfile='" + file + "'\nold='" + old + "'\nnew='return 7'\npackage='./x'\ntests=['" + test + "']\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func names(rows []control) string {
	var all []string
	for _, c := range rows {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

func choose(t *testing.T, dir string, c choice) string {
	t.Helper()
	tables, err := readTables(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.match == nil {
		c.match = regexp.MustCompile("")
	}
	rows, err := c.choose(t.Context(), dir, tables, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return names(rows)
}

// TestSince: a row is chosen when its text, its file or its tests' files differ.
func TestSince(t *testing.T) {
	dir := smallTree(t)
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."},
		{"-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "m"},
	} {
		c := exec.Command("git", args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	since := choice{since: "HEAD"}
	if got := choose(t, dir, since); got != "" {
		t.Errorf("nothing has changed: %q", got)
	}
	for _, c := range []struct{ file, text, want string }{
		{"x/z.go", "package x\n", ""},
		{"x/b_test.go", "package x\n\nimport \"testing\"\n\nfunc TestB(*testing.T) { B() }\n", "b"},
		{"controls/x.toml", row("a", "x/x.go", "1", "TestA"), "a b"},
	} {
		write(t, filepath.Join(dir, c.file), c.text)
		if got := choose(t, dir, since); got != c.want {
			t.Errorf("%s has changed: %q", c.file, got)
		}
	}
}

// TestSample is of the asked size, in the order of the rows, and the same one
// for the same seed.
func TestSample(t *testing.T) {
	rows := make([]control, 100)
	for i := range rows {
		rows[i].Name = fmt.Sprintf("%03d", i)
	}
	some := names(someOf(rows, 10, 3))
	if some != names(someOf(rows, 10, 3)) || some == names(someOf(rows, 10, 4)) {
		t.Error("the seed does not decide")
	}
	list := strings.Fields(some)
	if len(list) != 10 || !slices.IsSorted(list) || len(slices.Compact(list)) != 10 {
		t.Errorf("%q", list)
	}
}

// TestSeenRowsAreLeftOut runs the program on a small tree: a row that failed is
// tried again only when something of it changes, one that survived always.
func TestSeenRowsAreLeftOut(t *testing.T) {
	dir := smallTree(t)
	kept := filepath.Join(t.TempDir(), "results")
	try := func() (progress string, ends []result) {
		t.Helper()
		tables, err := readTables(dir)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := openResults(kept)
		if err != nil {
			t.Fatal(err)
		}
		defer seen.close()
		var told bytes.Buffer
		p := plan{root: dir, parallel: 1, progress: &told, seen: seen}
		ends, err = p.try(t.Context(), choice{match: regexp.MustCompile("")}.named(tables))
		if err != nil {
			t.Fatal(err)
		}
		return told.String(), ends
	}
	told, ends := try()
	if len(ends) != 2 || !ends[0].Failed || ends[1].Failed || !strings.Contains(told, "x2: b") {
		t.Fatalf("%+v\n%s", ends, told)
	}
	told, again := try()
	if !slices.Equal(ends, again) || strings.Contains(told, "x: a") || !strings.Contains(told, "x2: b") {
		t.Errorf("%+v\n%s", again, told)
	}
	b, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	write(t, kept, string(b)+`{"row":"in`) // as a run leaves it that is killed
	write(t, filepath.Join(dir, "x/x.go"), "package x\n\nfunc A() int { return 1 } // as before\n")
	if told, again = try(); !slices.Equal(ends, again) || !strings.Contains(told, "x: a") {
		t.Errorf("%+v\n%s", again, told)
	}
}
