package yett_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// actors are those that the threat model has to speak of.
var actors = []string{
	"Another account", "An unapproved process of the same account", "A copy of the agent's program", "A changed plugin inside the agent",
	"A package script that the agent started", "An editor extension", "A shell that the agent started", "An agent that drives the person's browser",
	"An untrusted checkout that steers the prompt", "An old process that outlives its job",
}

// boundaries are the places where two that do not trust each other meet.
var boundaries = []string{
	"agent → `yett-mcp`", "`yett-mcp` or native client → broker", "broker → its clients", "person → broker", "card → person",
	"broker → vault", "broker → ledger", "broker → API", "broker → SSH host", "broker's process",
}

// TestDocsThreatRows: every actor and every boundary has a row with five cells:
// who, what stops it, in which profile, what does not, and tests that exist.
func TestDocsThreatRows(t *testing.T) {
	doc := document(t, "docs/threat-model.md")
	for _, table := range []struct {
		first string
		want  []string
	}{{"actor", actors}, {"boundary", boundaries}} {
		rows := tableRows(doc, table.first)
		for _, name := range table.want {
			if !slices.ContainsFunc(rows, func(r []string) bool { return r[0] == name }) {
				t.Errorf("docs/threat-model.md has no row for %q", name)
			}
		}
		for _, r := range rows {
			switch {
			case len(r) != 5:
				t.Errorf("%s: %d cells", r[0], len(r))
			case r[1] == "" || r[3] == "":
				t.Errorf("%s: what stops it and what does not must both be said", r[0])
			case r[2] != "desktop":
				t.Errorf("%s: the profile %q is not one that there is", r[0], r[2])
			case !strings.Contains(r[4], "`Test"):
				t.Errorf("%s: no test", r[0])
			}
		}
	}
}

// strong finds words that promise something.
var strong = regexp.MustCompile(`(?i)\b(cannot|can't|never|impossible|always|prevents?|guarantees?|ensures?|nobody|no one|protects?|nothing|no \w+ can|worth nothing)\b`)

// overstated finds words that no page and no program of ours may use about
// itself: they claim more than evidence about processes of one account gives.
var overstated = regexp.MustCompile(`(?i)\b(unbreakable|unforgeable|bullet-?proof|tamper-?proof|hack-?proof|100 ?%|fully secure|completely secure|military.grade|zero.trust|foolproof|guarantee[sd]?|malware(-| )proof|immune)\b`)

// TestDocsClaims: every sentence of the pages on security that promises
// something stands in docs/claims.txt with what it rests on: tests that exist,
// or the word "limit" when it says what Yett does not do. A new promise fails
// here until somebody says what shows it.
func TestDocsClaims(t *testing.T) {
	known := testsOfTheTree(t)
	claims := map[string]bool{} // sentence: used
	for line := range strings.Lines(document(t, "docs/claims.txt")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		sentence, basis, ok := strings.Cut(line, " <- ")
		if !ok {
			t.Errorf("docs/claims.txt: no basis: %s", line)
			continue
		}
		claims[sentence] = false
		for _, b := range strings.Fields(basis) {
			if b != "limit" && !known[b] {
				t.Errorf("docs/claims.txt: %s rests on %s, which does not exist", sentence, b)
			}
		}
	}
	for _, path := range []string{"README.md", "SECURITY.md", "docs/threat-model.md"} {
		for _, s := range sentences(document(t, path)) {
			if !strong.MatchString(s) {
				continue
			}
			if _, ok := claims[s]; !ok {
				t.Errorf("%s promises what docs/claims.txt does not have:\n%s", path, s)
			}
			claims[s] = true
		}
	}
	for s, used := range claims {
		if !used {
			t.Errorf("docs/claims.txt has a sentence that is promised nowhere: %s", s)
		}
	}
}

// TestNoOverstatement: neither documents nor the texts in the programs use
// words that claim more than can be shown.
func TestNoOverstatement(t *testing.T) {
	for path, doc := range documents(t) {
		for _, m := range overstated.FindAllString(doc, -1) {
			t.Errorf("%s says %q", path, m)
		}
	}
	literal := regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`")
	files := 0
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		for _, text := range literal.FindAllString(document(t, path), -1) {
			if m := overstated.FindString(text); m != "" {
				t.Errorf("%s says %q", path, m)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files: %v", files, err)
	}
}

// sentences splits a page into sentences: cells of tables, items of lists and
// paragraphs apart, blocks of code left out, white space made one space.
func sentences(doc string) []string {
	doc = strings.ReplaceAll(fenced.ReplaceAllString(doc, "\n"), "\n> ", "\n")
	var parts []string
	var paragraph strings.Builder
	flush := func() {
		parts = append(parts, paragraph.String())
		paragraph.Reset()
	}
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		if cells := cellsOf(line); cells != nil {
			flush()
			parts = append(parts, cells...)
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "- ") {
			flush()
		}
		if strings.HasPrefix(line, "#") { // a heading promises nothing
			continue
		}
		paragraph.WriteString(" " + strings.TrimPrefix(line, "- "))
	}
	flush()
	end := regexp.MustCompile(`([.;:!?])\s+`)
	var all []string
	for _, p := range parts {
		for _, s := range strings.Split(end.ReplaceAllString(strings.Join(strings.Fields(p), " "), "$1\n"), "\n") {
			if s = strings.TrimSpace(s); s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}
