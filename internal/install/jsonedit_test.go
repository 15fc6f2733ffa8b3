package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJSONAddAndRemove: the layouts that people and programs write; what comes
// back is every byte that was there.
func TestJSONAddAndRemove(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"empty object":          {"{}", "{\n  \"m\": {\n    \"y\": 1\n  }\n}"},
		"its own line":          {"{\n}\n", "{\n  \"m\": {\n    \"y\": 1\n  }\n}\n"},
		"tabs":                  {"{\n\t\"a\": 1\n}", "{\n\t\"a\": 1,\n\t\"m\": {\n\t\t\"y\": 1\n\t}\n}"},
		"one line":              {`{"a": 1}`, `{"a": 1, "m": {"y":1}}`},
		"one line, container":   {`{"m": {"x": 1}}`, `{"m": {"x": 1, "y": 1}}`},
		"empty container":       {"{\n  \"m\": {}\n}", "{\n  \"m\": {\n    \"y\": 1\n  }\n}"},
		"carriage returns":      {"{\r\n  \"a\": 1\r\n}\r\n", "{\r\n  \"a\": 1,\r\n  \"m\": {\r\n    \"y\": 1\r\n  }\r\n}\r\n"},
		"trailing comma":        {"{\n  \"a\": 1, // one\n}", "{\n  \"a\": 1, // one\n  \"m\": {\n    \"y\": 1\n  },\n}"},
		"comment behind":        {"{\n  \"a\": 1 // one\n}", "{\n  \"a\": 1, // one\n  \"m\": {\n    \"y\": 1\n  }\n}"},
		"comment below":         {"{\n  \"a\": 1\n  // end\n}", "{\n  \"a\": 1,\n  \"m\": {\n    \"y\": 1\n  }\n  // end\n}"},
		"block comment":         {"{\n  \"a\": /* x */ 1 /* one */\n}", "{\n  \"a\": /* x */ 1, /* one */\n  \"m\": {\n    \"y\": 1\n  }\n}"},
		"byte order mark":       {"\ufeff{\n  \"a\": 1\n}", "\ufeff{\n  \"a\": 1,\n  \"m\": {\n    \"y\": 1\n  }\n}"},
		"text that looks alike": {"{\n  \"a\": \"}, \\\" // no\"\n}", "{\n  \"a\": \"}, \\\" // no\",\n  \"m\": {\n    \"y\": 1\n  }\n}"},
	} {
		d, err := openDocument(c.before, formatLoose)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		made, err := d.add([]string{"m", "y"}, "1")
		if err != nil || d.text != c.after {
			t.Errorf("%s: %v\n%s", name, err, d.text)
			continue
		}
		found, err := d.remove([]string{"m", "y"}, "", made)
		before := c.before
		if name == "its own line" {
			before = "{}\n" // nothing tells where the brace stood
		}
		if err != nil || !found || d.text != before {
			t.Errorf("%s: removing: %v %v\n%s", name, found, err, d.text)
		}
	}
}

// TestJSONRemoveAmongOthers: somebody put things around ours meanwhile.
func TestJSONRemoveAmongOthers(t *testing.T) {
	for before, after := range map[string]string{
		"{\n  \"m\": {\n    \"y\": {},\n    \"z\": 1\n  }\n}":         "{\n  \"m\": {\n    \"z\": 1\n  }\n}",
		"{\n  \"m\": {\n    \"x\": 1, // one\n    \"y\": {}\n  }\n}":  "{\n  \"m\": {\n    \"x\": 1 // one\n  }\n}",
		"{\n  \"m\": {\n    // ours\n    \"y\": {}, \"z\": 1\n  }\n}": "{\n  \"m\": {\n    // ours\n     \"z\": 1\n  }\n}",
		"{\n  \"m\": {\n    // ours\n    \"y\": {} }\n}":              "{\n  \"m\": {\n    // ours\n     }\n}",
		"{\n  \"m\": {\n    \"y\": {} // ours\n  },\n  \"n\": 1\n}":   "{\n  \"m\": {\n     // ours\n  },\n  \"n\": 1\n}",
		`{"m":{"y":{}},"n":1}`: `{"n":1}`,
		`{"n":1,"m":{"y":{}}}`: `{"n":1}`,
	} {
		d, err := openDocument(before, formatLoose)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := d.remove([]string{"m", "y"}, "", 1); err != nil || !found || d.text != after {
			t.Errorf("%s\nbecame (%v, %v)\n%s", before, found, err, d.text)
		}
	}
}

func TestJSONElements(t *testing.T) {
	for before, after := range map[string]string{
		"{}":                                 "{\n  \"p\": {\n    \"a\": [\n      \"y\"\n    ]\n  }\n}",
		`{"p": {"a": []}}`:                   `{"p": {"a": ["y"]}}`,
		`{"p": {"a": ["x"]}}`:                `{"p": {"a": ["x", "y"]}}`,
		"{\"p\": {\"a\": [\n  \"x\",\n]}}":   "{\"p\": {\"a\": [\n  \"x\",\n  \"y\",\n]}}",
		"{\"p\": {\"a\": [\n  \"x\" //\n]}}": "{\"p\": {\"a\": [\n  \"x\", //\n  \"y\"\n]}}",
	} {
		d, err := openDocument(before, formatLoose)
		if err != nil {
			t.Fatal(err)
		}
		made, err := d.addElement([]string{"p", "a"}, `"y"`)
		if err != nil || d.text != after {
			t.Errorf("%s became (%v)\n%s", before, err, d.text)
			continue
		}
		if found, err := d.remove([]string{"p", "a"}, `"y"`, made); err != nil || !found || d.text != before {
			t.Errorf("%s came back (%v, %v) as\n%s", before, found, err, d.text)
		}
	}
}

// TestJSONDamage: the line is named, as the client's own reader sees it.
func TestJSONDamage(t *testing.T) {
	for _, c := range []struct {
		text   string
		format Format
		line   int
	}{
		{"{\n  \"a\": 1\n  \"b\": 2\n}", formatLoose, 3},
		{"{\n  \"a\": 1,\n}", formatJSON, 3},
		{"{\n  \"a\": 1,\n}", formatJSONC, 3},
		{"{\n  // no\n}", formatJSON, 2},
		{"{\n  \"a\": \"x\n}", formatLoose, 2},
		{"{\n  \"a\": tru\n}", formatLoose, 2},
		{"{\n  \"a\": 01\n}", formatLoose, 2},
		{"{\n  'a': 1\n}", formatLoose, 2},
		{"{\n  \"a\": 1", formatLoose, 2},
		{"{}\n{}", formatLoose, 2},
		{"{\n /* x", formatLoose, 2},
		{"[]", formatLoose, 1},
		{"{\"a\": \"\xff\"}", formatLoose, 1},
		{"{\"a\": \"\\x\"}", formatLoose, 1},
		{"{,}", formatLoose, 1},
		{"{\"a\":" + strings.Repeat("[", 5000), formatLoose, 1},
	} {
		_, err := openDocument(c.text, c.format)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Line != c.line {
			t.Errorf("%.40q: %v, want line %d", c.text, err, c.line)
		}
	}
	d, err := openDocument("{\n \"m\": {\"y\": 1},\n \"m\": {}\n}", formatJSON)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.add([]string{"m", "z"}, "1"); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a name that stands there twice: %v", err)
	}
	for _, text := range []string{"{\"m\": []}", "{\"m\": null}", "{\"m\": \"x\"}"} {
		d, err := openDocument(text, formatJSON)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.add([]string{"m", "z"}, "1"); err == nil || d.text != text {
			t.Errorf("%s: %v, %s", text, err, d.text)
		}
	}
}

// FuzzJSON: whatever a text is, reading it does not fail badly, an edit of one
// that can be read can be read, and taking it back leaves what was there.
func FuzzJSON(f *testing.F) {
	paths, err := filepath.Glob("testdata/before/*.json")
	if err != nil || len(paths) < 8 {
		f.Fatalf("%d texts to begin with: %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("{\n // x\n \"mcpServers\": {\"yett\": {}, // y\n },}")
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []Format{formatJSON, formatJSONC, formatLoose} {
			d, err := openDocument(text, format)
			if err != nil || d.root == nil {
				continue
			}
			path := []string{"mcpServers", "yett"}
			if n, err := d.value(path); err != nil || n != nil {
				continue
			}
			was := d.plain(d.root)
			made, err := d.add(path, `{"command": "x"}`)
			var syntax *SyntaxError
			if errors.As(err, &syntax) && !strings.Contains(err.Error(), "damage") {
				continue // mcpServers is no object
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if found, err := d.remove(path, "", made); err != nil || !found || d.plain(d.root) != was {
				t.Fatalf("%v %v\n%s\nbecame\n%s", found, err, text, d.text)
			}
		}
	})
}
