package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = ".."

func tables(t *testing.T) []table {
	t.Helper()
	all, err := readTables(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there are no rows")
	}
	return all
}

// testsOf returns the names of the tests of a package, on every system.
func testsOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := readTests(root, pkg)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(files))
}

// TestRows: each row still means a text of the tree, leaves a file that parses,
// and names tests that exist. Whether they fail is what the program shows.
func TestRows(t *testing.T) {
	packages := map[string][]string{}
	for _, table := range tables(t) {
		for _, c := range table.Controls {
			files, err := c.changed(root)
			if err != nil {
				t.Errorf("%s: %s: %v", c.room, c.Name, err)
				continue
			}
			for name, text := range files {
				if filepath.Ext(name) != ".go" { // embedded in a program or a test
					continue
				}
				if _, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution); err != nil {
					t.Errorf("%s: %s: without the control: %v", c.room, c.Name, err)
				}
			}
			if packages[c.Package] == nil {
				packages[c.Package] = testsOf(t, c.Package)
			}
			for _, name := range c.Tests {
				if !slices.Contains(packages[c.Package], name) {
					t.Errorf("%s: %s: %s has no %s", c.room, c.Name, c.Package, name)
				}
			}
		}
	}
}

// TestNamesAreTold: no two rows have the same name.
func TestNamesAreTold(t *testing.T) {
	seen := map[string]string{}
	for _, table := range tables(t) {
		for _, c := range table.Controls {
			if room, twice := seen[c.Name]; twice {
				t.Errorf("%s and %s both have a row %q", room, c.room, c.Name)
			}
			seen[c.Name] = c.room
		}
	}
}

// TestEveryAttackHasAControl: an attack that is refused is refused by a control
// that a row removes; any other is shown, and a row says where.
func TestEveryAttackHasAControl(t *testing.T) {
	const home = "./internal/yetttest"
	var rows, shownOnes []string
	for _, table := range tables(t) {
		for _, c := range table.Controls {
			if c.Package == home {
				rows = append(rows, c.Tests...)
			}
		}
		for _, s := range table.Shown {
			shownOnes = append(shownOnes, s.Test)
		}
	}
	all := testsOf(t, home)
	for _, name := range all {
		if strings.HasPrefix(name, "TestAttack") && !slices.Contains(rows, name) && !slices.Contains(shownOnes, name) {
			t.Errorf("no row removes the control that %s attacks, and none says where it is shown", name)
		}
	}
	for _, name := range shownOnes {
		if !slices.Contains(all, name) {
			t.Errorf("%s, said to be shown, does not exist", name)
		}
	}
}

// TestUnclearRowsAreRefused: a row that says too little or too much is an error.
func TestUnclearRowsAreRefused(t *testing.T) {
	const good = "[[control]]\nname='n'\nfile='f.go'\nold='a'\nnew='b'\npackage='./x'\ntests=['TestA']\n"
	for what, text := range map[string]string{
		"unknown key":      good + "skip=true\n",
		"no name":          strings.Replace(good, "name='n'", "", 1),
		"no test":          strings.Replace(good, "'TestA'", "", 1),
		"a pattern":        strings.Replace(good, "TestA", "Test.*", 1),
		"nothing changes":  strings.Replace(good, "'b'", "'a'", 1),
		"outside":          strings.Replace(good, "f.go", "../f.go", 1),
		"shown nowhere":    good + "[[shown]]\ntest='TestA'\n",
		"also says little": good + "[[control.also]]\nfile='f.go'\n",
	} {
		path := filepath.Join(t.TempDir(), "x.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readTable(path); err == nil {
			t.Errorf("%s: was read", what)
		}
	}
}

// TestJudge: only a test that ended by itself, and badly, counts as failed.
func TestJudge(t *testing.T) {
	for what, c := range map[string]struct{ events, end string }{
		"failed":  {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"fail","Test":"TestA"}`, failed},
		"passed":  {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"pass","Test":"TestA"}` + "\n" + `{"Action":"fail"}`, passed},
		"skipped": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"skip","Test":"TestA"}`, skipped},
		"crashed": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Output":"fatal error: stack overflow\n"}`, crashed},
		"hung":    {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Output":"panic: test timed out after 4m0s\n"}`, hung},
		"builds":  {`{"Action":"build-output","Output":"x.go:1: no\n"}` + "\n" + `{"Action":"build-fail"}`, ""},
		"nothing": {`{"Action":"output","Output":"yetttest: building yett: no\n"}`, ""},
	} {
		events, err := parseEvents(bytes.NewBufferString(c.events))
		if err != nil {
			t.Fatal(err)
		}
		ends, err := judge(events, []string{"TestA"}, os.ErrProcessDone, "")
		if (err != nil) != (c.end == "") || err == nil && ends["TestA"] != c.end {
			t.Errorf("%s: %v, %v", what, ends, err)
		}
	}
}
