package peer

import (
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

// Each row of the table says where it is known from, and what it says is what
// is judged and shown.
func TestPrograms_EachRowHasASourceAndAWord(t *testing.T) {
	table, err := parsePrograms(programsText)
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[programKind]int)
	for name, row := range table {
		kinds[row.kind]++
		if !sourced(row.source) {
			t.Errorf("%s: source %q", name, row.source)
		}
		var p action.Process
		p.Claimed.Runtime, _ = runtimeOf("/usr/bin/"+name, nil)
		words := Words(p)
		if row.kind == supervisor {
			if !supervises("/sbin/"+name) || len(words) != 0 {
				t.Errorf("%s is not judged a supervisor: %q", name, words)
			}
			continue
		}
		if want := "runtime: " + name + kindWords[row.kind]; supervises(name) || !slices.Equal(words, []string{want}) {
			t.Errorf("words %q, want %q", words, want)
		}
	}
	for kind := range kindWords {
		if kinds[kind] == 0 {
			t.Errorf("no row of kind %s", kind)
		}
	}
}

func TestPrograms_StrictTable(t *testing.T) {
	for _, text := range []string{
		"", "# only a comment\n", "runtime | node\n", "runtime | node | node(1) | more\n", "Runtime | node | node(1)\n",
		"runtime | node | \n", "runtime | node | somebody said so\n", "runtime | node | node(1), hearsay\n", "runtime | node | https://\n",
		"runtime | | node(1)\n", "runtime | node, | node(1)\n", "runtime | no de | node(1)\n", "runtime | ../node | node(1)\n", "runtime | 7z | node(1)\n",
		"runtime | node, node | node(1)\n", "runtime | node | node(1)\nshell | node | node(1)\n", "\trow | node | node(1)\n",
	} {
		if table, err := parsePrograms(text); err == nil || table != nil {
			t.Errorf("%q is a table: %v", text, table)
		}
	}
}

func FuzzParsePrograms(f *testing.F) {
	for line := range strings.Lines(programsText) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parsePrograms(text)
		if (err == nil) != (len(table) > 0) {
			t.Errorf("%d names, %v", len(table), err)
		}
		for name, row := range table {
			if !sourced(row.source) || name == "" || strings.ContainsAny(name, "/ |,") {
				t.Errorf("%q: %+v", name, row)
			}
		}
	})
}

// The shim reads the table while its host waits for it.
func BenchmarkPrograms(b *testing.B) {
	for b.Loop() {
		if _, err := parsePrograms(programsText); err != nil {
			b.Fatal(err)
		}
	}
}
