package yett_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/wire"
)

// documents returns the Markdown files of the repository by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			docs[path] = document(t, path)
		}
	}
	if len(docs) < 6 {
		t.Fatalf("only %d documents were found", len(docs))
	}
	return docs
}

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a fenced block: what stands behind the fence, and what in it.
type block struct{ info, text string }

var fenced = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

func blocks(doc string) []block {
	var all []block
	for _, m := range fenced.FindAllStringSubmatch(doc, -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

// TestDocsAccessFiles: examples of access files are good ones, and the examples
// of bad ones have exactly the problems that are printed behind them.
func TestDocsAccessFiles(t *testing.T) {
	good, bad := 0, 0
	for path, doc := range documents(t) {
		all := blocks(doc)
		for i, b := range all {
			_, err := access.Parse([]byte(b.text))
			switch b.info {
			case "toml":
				good++
				if err != nil {
					t.Errorf("%s: an example is refused:\n%v\n%s", path, err, b.text)
				}
			case "toml error":
				bad++
				if err == nil || i+1 == len(all) || all[i+1].info != "text" || strings.TrimSpace(all[i+1].text) != err.Error() {
					t.Errorf("%s: the problems of this example are not those behind it:\n%s\nThey are:\n%v", path, b.text, err)
				}
			}
		}
	}
	if good < 5 || bad < 3 {
		t.Errorf("%d good and %d bad examples were found", good, bad)
	}
}

// TestDocsPatterns: the tables of patterns say what Decide does.
// TestDocsEveryAccessKey: what the access file's reader asks a table for stands in
// the page that says it has every key.
func TestDocsEveryAccessKey(t *testing.T) {
	page := document(t, "docs/access-file.md")
	asked := regexp.MustCompile(`\bt\.(?:boolean|list|optional|required)\("([a-z_]+)"`)
	files, err := filepath.Glob("internal/access/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range asked.FindAllStringSubmatch(document(t, file), -1) {
			if found++; !strings.Contains(page, "`"+m[1]+"`") {
				t.Errorf("%s: the key %s is not in docs/access-file.md", file, m[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d keys were found: the reader asks in another way", found)
	}
}

func TestDocsPatterns(t *testing.T) {
	doc := document(t, "docs/access-file.md")
	seen := 0
	for _, row := range tableRows(doc, "pattern") {
		inside, outside := code(row[1]), code(row[2])
		for _, pattern := range code(row[0]) {
			for _, x := range inside {
				seen++
				if !within(t, pattern, x) {
					t.Errorf("%q is not within %q", x, pattern)
				}
			}
			for _, x := range outside {
				seen++
				if within(t, pattern, x) {
					t.Errorf("%q is within %q", x, pattern)
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d cases were found", seen)
	}
}

// within asks Decide about one path or command and one pattern.
func within(t *testing.T, pattern, asked string) bool {
	t.Helper()
	file := fmt.Sprintf("[credential.c]\nkind = \"bearer\"\norigin = \"https://c.example\"\n[capability.\"http:c\"]\ncredential = \"c\"\nmethods = [\"GET\"]\npaths = [%q]\n", pattern)
	r := action.Request{Capability: "http:c"}
	if !strings.HasPrefix(pattern, "/") {
		file = fmt.Sprintf("[credential.k]\nkind = \"ssh-key\"\n[host.h]\naddress = \"h.example\"\nuser = \"u\"\nkey = \"k\"\nhost_keys = [%q]\n[capability.\"ssh:h\"]\nhost = \"h\"\ncommands = [%q]\n", exampleHostKey, pattern)
		r.Capability = "ssh:h"
	}
	p, err := access.Parse([]byte(file))
	if err != nil {
		t.Fatalf("pattern %q: %v", pattern, err)
	}
	var refusal *action.Refusal
	if strings.HasPrefix(pattern, "/") {
		r.HTTP, refusal = action.NewHTTP(action.HTTPInput{Method: "GET", Path: asked})
	} else {
		r.SSH, refusal = action.NewSSH(action.SSHInput{Command: &asked})
	}
	if refusal != nil {
		t.Fatalf("%q: %v", asked, refusal)
	}
	return p.Decide(func(string) bool { return true }, r).Allowed
}

const exampleHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINsPSYGVCxI0+n4GzsP0mWf6nh359vYopHS9tKRpG6LK"

// TestDocsLinks: every link to a file or a heading leads somewhere.
func TestDocsLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	seen := 0
	for path, doc := range documents(t) {
		prose := fenced.ReplaceAllString(doc, "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			seen++
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(headings(document(t, file)), anchor) {
				t.Errorf("%s links to %s: there is no such heading", path, m[1])
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d links were found", seen)
	}
}

// headings returns the anchors of a document's headings.
func headings(doc string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(fenced.ReplaceAllString(doc, ""), -1) {
		all = append(all, strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
				return unicode.ToLower(c)
			}
			return -1
		}, m[1]))
	}
	return all
}

// TestDocsThreatsHaveTests: the tests that the threat model names exist, and the
// sentence of the profile in force stands there and in README.md word for word.
func TestDocsThreatsHaveTests(t *testing.T) {
	known := testsOfTheTree(t)
	doc := document(t, "docs/threat-model.md")
	for _, name := range regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9_]*`).FindAllString(doc, -1) {
		if !known[name] {
			t.Errorf("docs/threat-model.md names %s, which does not exist", name)
		}
	}
	quoted := strings.Join(strings.Fields(strings.ReplaceAll(doc, "\n> ", " ")), " ")
	if !strings.Contains(quoted, broker.Limits) {
		t.Error("docs/threat-model.md does not have the sentence that stands on the cards")
	}
	quoted = strings.Join(strings.Fields(strings.ReplaceAll(document(t, "README.md"), "\n> ", " ")), " ")
	if strings.Count(quoted, broker.Limits) != 2 { // on the card, and in its own section
		t.Error("README.md does not have the sentence that stands on the cards")
	}
}

// testsOfTheTree has the names of all test functions.
func testsOfTheTree(t *testing.T) map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*)\(t \*testing\.T\)`)
	known := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(known) < 100 {
		t.Fatalf("%d tests were found: %v", len(known), err)
	}
	return known
}

// TestDocsRooms: the table of rooms is what the packages really reach.
func TestDocsRooms(t *testing.T) {
	rows := tableRows(document(t, "docs/architecture.md"), "package")
	checked := 0
	for _, row := range rows {
		if row[2] == "everything" || row[2] == "" {
			continue
		}
		var listed []string
		for _, name := range code(row[2]) {
			if name != "client" {
				name = "internal/" + name
			}
			listed = append(listed, name)
		}
		slices.Sort(listed)
		for _, pkg := range code(row[0]) {
			checked++
			if reached := slices.Sorted(slices.Values(imports(t, pkg))); !slices.Equal(reached, listed) {
				t.Errorf("%s reaches %v; the table says %v", pkg, reached, listed)
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d packages were checked", checked)
	}
	rooms, err := filepath.Glob("internal/*")
	if err != nil || len(rooms) == 0 {
		t.Fatalf("no rooms were found: %v", err)
	}
	for _, room := range rooms {
		if !slices.ContainsFunc(rows, func(row []string) bool { return slices.Contains(code(row[0]), room) }) {
			t.Errorf("docs/architecture.md has no row for %s", room)
		}
	}
}

// TestDocsErrorTable: the table of error codes is that of the program.
func TestDocsErrorTable(t *testing.T) {
	codes := constants(t, "internal/wire/errors.go", "Code", "Reason")
	rows := tableRows(document(t, "docs/operation.md"), "code")
	var listed []string
	for _, row := range rows {
		name := strings.Trim(row[0], "`")
		listed = append(listed, name)
		m, next := wire.Advice(name)
		if len(row) != 3 || row[1] != m || row[2] != next {
			t.Errorf("the row of %s is not what the program says:\n| `%s` | %s | %s |", name, name, m, next)
		}
	}
	for _, name := range codes {
		if !slices.Contains(listed, name) {
			m, next := wire.Advice(name)
			t.Errorf("docs/operation.md has no row for %s:\n| `%s` | %s | %s |", name, name, m, next)
		}
	}
	if len(codes) < 25 || len(listed) != len(codes) {
		t.Errorf("%d codes, %d rows", len(codes), len(listed))
	}
}

// constants returns the values of a file's string constants by prefix of name.
func constants(t *testing.T, path string, prefixes ...string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if ok && lit.Kind == token.STRING && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(spec.Names[0].Name, p) }) {
			if v, err := strconv.Unquote(lit.Value); err == nil {
				values = append(values, v)
			}
		}
		return true
	})
	return values
}

// TestDocsCommands: every command line of yett in the documents names commands
// and flags that exist.
func TestDocsCommands(t *testing.T) {
	yett := filepath.Join(t.TempDir(), "yett")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", yett, "./cmd/yett")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building yett: %v\n%s", err, out)
	}
	help := map[string]string{}
	helpOf := func(command string) string {
		if _, ok := help[command]; !ok {
			out, _ := exec.Command(yett, append(strings.Fields(command), "--help")...).Output()
			help[command] = string(out)
		}
		return help[command]
	}
	seen := 0
	for path, doc := range documents(t) {
		for _, line := range commandLines(doc) {
			seen++
			if problem := unknownIn(line, helpOf); problem != "" {
				t.Errorf("%s: %q: %s", path, line, problem)
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d command lines were found", seen)
	}
}

// commandLines returns what begins with yett in code: in spans, and as lines of
// shell and console blocks.
func commandLines(doc string) []string {
	var lines []string
	for _, b := range blocks(doc) {
		if b.info != "sh" && b.info != "console" {
			continue
		}
		for line := range strings.Lines(b.text) {
			if line = strings.TrimPrefix(strings.TrimSpace(line), "$ "); strings.HasPrefix(line, "yett ") {
				line, _, _ = strings.Cut(line, "#")
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	for _, span := range code(fenced.ReplaceAllString(doc, "")) {
		if strings.HasPrefix(span, "yett ") {
			lines = append(lines, span)
		}
	}
	return lines
}

// groups are the commands that have commands of their own.
var groups = []string{"secret", "access", "audit", "operation", "vault", "passkey"}

// unknownIn returns what a command line has that the program has not.
func unknownIn(line string, helpOf func(string) string) string {
	words := strings.Fields(line)[1:]
	if len(words) == 0 || words[0] == "--help" {
		return ""
	}
	command := words[0]
	if strings.HasPrefix(command, "…") {
		return "" // any command
	}
	var variants []string
	if strings.HasPrefix(line, "yett receipt verify") { // a command beside yett receipt N
		variants = []string{"receipt verify"}
	} else if slices.Contains(groups, command) {
		if len(words) < 2 {
			return "the command of " + command + " is missing"
		}
		for _, sub := range strings.Split(words[1], "|") {
			variants = append(variants, command+" "+sub)
		}
	} else {
		variants = []string{command}
	}
	for _, c := range variants {
		usage := helpOf(c)
		if !strings.Contains(usage, "\n  yett "+c+" ") && !strings.Contains(usage, "\n  yett "+c+"\n") {
			return fmt.Sprintf("there is no command %q", c)
		}
		for _, flag := range regexp.MustCompile(`--[a-z][a-z-]*`).FindAllString(line, -1) {
			if !regexp.MustCompile(regexp.QuoteMeta(flag) + `\b`).MatchString(usage) {
				return fmt.Sprintf("%q has no flag %s", c, flag)
			}
		}
	}
	return ""
}

// tableRows returns the cells of every table whose heading begins with first.
func tableRows(doc, first string) [][]string {
	var rows [][]string
	in := false
	for line := range strings.Lines(fenced.ReplaceAllString(doc, "")) {
		line = strings.TrimSpace(line)
		cells := cellsOf(line)
		switch {
		case cells == nil:
			in = false
		case !in:
			in = strings.EqualFold(cells[0], first)
		case strings.Trim(line, "|-: ") != "":
			rows = append(rows, cells)
		}
	}
	return rows
}

// cellsOf splits a line of a table; \| is a bar within a cell.
func cellsOf(line string) []string {
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") {
		return nil
	}
	line = strings.ReplaceAll(line[1:len(line)-1], `\|`, "\x00")
	cells := strings.Split(line, "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|"))
	}
	return cells
}

// code returns the code spans of a text.
func code(text string) []string {
	var spans []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		spans = append(spans, m[1])
	}
	return spans
}
