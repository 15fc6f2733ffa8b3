package ambient

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// entry is one value in a text. The value is a part of the text or a copy of
// one, and cleared by whoever asked for entries. line is the place of the whole
// line, where taking that away takes the value away and nothing else.
type entry struct {
	section, key string
	value        []byte
	line         [2]int
	removable    bool
	obstacle     string // why the value cannot be taken from there; "" if it can
	scope        int    // which of the sections of one name, where these are a list
}

// reader finds the values of keys in a text. It gives what it understands and
// nothing of the rest.
type reader func(text []byte, keys []string) []entry

var readers = map[string]reader{
	"ini": readINI, "json": readJSON, "yaml": readYAML, "hcl": readHCL, "netrc": readNetrc, "npmrc": readNpmrc, "git": readGit,
	"pgpass": readPgpass, "dotenv": readDotenv, "file": readWhole, "exists": readExistence,
}

// eachLine calls fn for each line with its place in the text.
func eachLine(text []byte, fn func(line []byte, at [2]int)) {
	for from := 0; from < len(text); {
		end := len(text)
		if i := bytes.IndexByte(text[from:], '\n'); i >= 0 {
			end = from + i + 1
		}
		fn(bytes.TrimSpace(text[from:end]), [2]int{from, end})
		from = end
	}
}

// bare is a value without quotes and what a comment says. References to
// variables and empty values are none.
func bare(value []byte) []byte {
	value = bytes.TrimSpace(value)
	if bytes.HasPrefix(value, []byte(`"""`)) || bytes.HasPrefix(value, []byte("'''")) {
		return value
	}
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') {
		if end := bytes.IndexByte(value[1:], value[0]); end >= 0 {
			value = value[1 : 1+end]
		}
	} else if i := bytes.Index(value, []byte(" #")); i >= 0 {
		value = bytes.TrimSpace(value[:i])
	}
	if bytes.HasPrefix(value, []byte("$")) || bytes.Equal(value, []byte("null")) || bytes.Equal(value, []byte("~")) {
		return nil
	}
	return value
}

func readINI(text []byte, keys []string) (all []entry) {
	section, scope, last := "", 0, -1
	value := span{indent: -1}
	eachLine(text, func(line []byte, at [2]int) {
		indent := indentOf(text[at[0]:at[1]])
		inside := value.holds(line, indent)
		if inside && last >= 0 && all[last].obstacle == "" {
			all[last].obstacle = continued
		}
		switch {
		case len(line) > 2 && line[0] == '[' && line[len(line)-1] == ']':
			section, last = strings.TrimPrefix(strings.Trim(string(line), `[]" `), "profile "), -1
			if line[1] == '[' {
				scope++
			}
			if inside { // or it is a part of a value
				section = "?"
			} else {
				value = span{indent: -1}
			}
		case len(line) > 0 && line[0] != '#' && line[0] != ';':
			key, text, ok := bytes.Cut(line, []byte("="))
			name := strings.Trim(string(bytes.TrimSpace(key)), `"`)
			if !inside {
				value.begin(text, indent)
				last = -1
			}
			if !ok || !slices.Contains(keys, name) {
				return
			}
			e := entry{section: section, key: name, value: bare(text), line: at, removable: true, scope: scope, obstacle: plainObstacle(text, " #", " ;")}
			if inside {
				e.obstacle = inAnother
			} else {
				last = len(all)
			}
			all = append(all, e)
		}
	})
	markTwice(all)
	return all
}

// readDotenv reads as a shell does, so that no line inside the quotes of
// another is a variable. Where a library of dotenv would see a variable there,
// it is told without its name.
func readDotenv(text []byte, keys []string) (all []entry) {
	var open byte
	var follows, sure bool
	eachLine(text, func(line []byte, at [2]int) {
		inside := open != 0 || follows
		if !inside && bytes.HasPrefix(line, []byte("#")) {
			return
		}
		key, value, ok := bytes.Cut(bytes.TrimPrefix(line, []byte("export ")), []byte("="))
		name := string(bytes.TrimSpace(key))
		ok = ok && isVariable(name)
		if !inside {
			sure = ok && isQuotedOver(value, text[at[1]:])
		}
		e := entry{key: name, value: bare(value), line: at, removable: true, obstacle: shellObstacle(value)}
		if e.value == nil && e.obstacle != "" && !reference.Match(bytes.TrimSpace(value)) {
			e.value = bytes.TrimSpace(value)
		}
		if inside {
			e.key, e.obstacle = "?", inAnother
		}
		if ok && (!inside || !sure && !follows) && (keys == nil && tellsSecret(name) || slices.Contains(keys, name)) {
			all = append(all, e)
		}
		open = openQuote(line, open)
		follows = open == 0 && endsInBackslash(line)
	})
	markTwice(all)
	return all
}

// readJSON walks members without making strings of their values.
func readJSON(text []byte, keys []string) (all []entry) {
	var walk func(raw json.RawMessage, path []string, depth int)
	walk = func(raw json.RawMessage, path []string, depth int) {
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 || depth > 20 {
			return
		}
		switch raw[0] {
		case '{':
			var members map[string]json.RawMessage
			if json.Unmarshal(raw, &members) != nil {
				return
			}
			for name, value := range members {
				walk(value, append(slices.Clone(path), name), depth+1)
				clear(value)
			}
		case '[':
			var items []json.RawMessage
			if json.Unmarshal(raw, &items) != nil {
				return
			}
			for _, item := range items {
				walk(item, path, depth+1)
				clear(item)
			}
		case '"':
			if n := len(path); n > 0 && slices.Contains(keys, path[n-1]) {
				section := ""
				if n > 1 {
					section = path[n-2]
				}
				all = append(all, entry{section: section, key: path[n-1], value: unquote(raw)})
			}
		}
	}
	walk(text, nil, 0)
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.section+"\x00"+a.key, b.section+"\x00"+b.key) })
	return all
}

// unquote copies a JSON string.
func unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return bytes.Clone(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return []byte(s)
}

// readYAML knows maps and lists by indentation, which is what these files are.
// The section is the nearest name: of the list's item, or the key above.
func readYAML(text []byte, keys []string) (all []entry) {
	type level struct {
		indent int
		name   string
	}
	var above []level
	item, value, last := "", span{indent: -1}, -1
	eachLine(text, func(line []byte, at [2]int) {
		raw := bytes.TrimRight(text[at[0]:at[1]], "\r\n")
		indent := len(raw) - len(bytes.TrimLeft(raw, " "))
		if value.holds(line, indent) {
			if last >= 0 {
				all[last].obstacle = continued
			}
			return
		}
		value.indent = -1
		if len(line) > 0 {
			last = -1
		}
		column := indent
		if bytes.HasPrefix(line, []byte("- ")) {
			column += len(line) - len(bytes.TrimLeft(line[1:], " "))
			item, line = "", bytes.TrimSpace(line[2:])
			indent++
		}
		key, val, ok := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.HasPrefix(line, []byte(":")): // a symbol of Ruby
			key, val, ok = bytes.Cut(line[1:], []byte(":"))
		case len(line) > 0 && (line[0] == '"' || line[0] == '\''):
			key, val, ok = bytes.Cut(line[1:], []byte{line[0], ':'})
		}
		if !ok || len(line) == 0 || line[0] == '#' {
			return
		}
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		name := strings.Trim(string(bytes.TrimSpace(key)), `"'`)
		if name == "name" {
			item = string(bare(val))
		}
		if slices.Contains(keys, name) {
			section := item
			if section == "" && len(above) > 0 {
				section = above[0].name
				if len(above) > 1 && !slices.Contains([]string{"users", "user"}, above[len(above)-2].name) {
					section = above[len(above)-1].name
				}
			}
			last = len(all)
			all = append(all, entry{section: section, key: name, value: bare(val), obstacle: yamlObstacle(val)})
		}
		if val = bytes.TrimSpace(val); len(val) > 0 && val[0] != '#' { // a scalar: what is indented more is a part of it
			value.begin(val, column)
		}
		above = append(above, level{indent, name})
	})
	return all
}

// yamlObstacle knows scalars that are no plain text.
func yamlObstacle(value []byte) string {
	if value = bytes.TrimSpace(value); len(value) > 0 && bytes.IndexByte([]byte("|>&*!{[%@"), value[0]) >= 0 {
		return severalOf
	}
	return plainObstacle(value)
}

func readHCL(text []byte, keys []string) (all []entry) {
	section := ""
	value := span{indent: -1}
	eachLine(text, func(line []byte, _ [2]int) {
		if value.holds(line, 0) {
			return
		}
		if rest, ok := bytes.CutPrefix(line, []byte("credentials ")); ok {
			section = strings.Trim(string(rest), `" {`)
			return
		}
		key, val, ok := bytes.Cut(line, []byte("="))
		value.begin(val, 0)
		obstacle := plainObstacle(val)
		if _, mark, here := bytes.Cut(val, []byte("<<")); here {
			value.mark, obstacle = bytes.Trim(mark, "- "), continued
		}
		if name := string(bytes.TrimSpace(key)); ok && slices.Contains(keys, name) {
			all = append(all, entry{section: section, key: name, value: bare(val), obstacle: obstacle})
		}
	})
	return all
}

func readNetrc(text []byte, keys []string) (all []entry) {
	words, machine := netrcWords(text), ""
	for i := 0; i < len(words); i++ {
		switch string(words[i]) {
		case "default":
			machine = "default"
		case "machine", "password", "login", "account":
			if i+1 == len(words) {
				return all
			}
			if string(words[i]) == "machine" {
				machine = string(words[i+1])
			} else if slices.Contains(keys, string(words[i])) {
				e := entry{section: machine, key: string(words[i]), value: bare(words[i+1])}
				if bytes.ContainsAny(words[i+1], `"'\`) {
					e.obstacle = oddQuotes
				}
				all = append(all, e)
			}
			i++
		}
	}
	return all
}

// netrcWords splits at blanks outside of double quotes, and leaves macros out.
func netrcWords(text []byte) (words [][]byte) {
	for text = bytes.TrimSpace(text); len(text) > 0; text = bytes.TrimSpace(text) {
		end := bytes.IndexAny(text, " \t\r\n")
		if text[0] == '"' {
			end = 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end++
		}
		if end < 0 || end > len(text) {
			end = len(text)
		}
		word := text[:end]
		text = text[end:]
		if string(word) == "macdef" { // up to an empty line
			_, text, _ = bytes.Cut(text, []byte("\n\n"))
			continue
		}
		words = append(words, word)
	}
	return words
}

func readNpmrc(text []byte, keys []string) (all []entry) {
	eachLine(text, func(line []byte, at [2]int) {
		key, value, ok := bytes.Cut(line, []byte("="))
		name := string(bytes.TrimSpace(key))
		host := ""
		if i := strings.LastIndex(name, ":"); i >= 0 {
			host, name = strings.Trim(name[:i], "/"), name[i+1:]
		}
		if ok && slices.Contains(keys, name) {
			all = append(all, entry{section: host, key: name, value: bare(value), line: at, removable: true,
				obstacle: plainObstacle(value, "#", ";", `\`, "`")})
		}
	})
	markTwice(all)
	return all
}

// readGit takes the password, or the user where that alone is the token.
func readGit(text []byte, _ []string) (all []entry) {
	eachLine(text, func(line []byte, at [2]int) {
		_, rest, ok := bytes.Cut(line, []byte("://"))
		authority, path, _ := bytes.Cut(rest, []byte("/"))
		at1, obstacle := bytes.LastIndexByte(authority, '@'), ""
		if bytes.IndexByte(path, '@') >= 0 {
			at1, obstacle = bytes.LastIndexByte(rest, '@'), severalOf
		}
		if !ok || at1 < 1 {
			return
		}
		user, password, two := bytes.Cut(rest[:at1], []byte(":"))
		value := user
		if two && !bytes.Equal(password, []byte("x-oauth-basic")) {
			value = password
		}
		host, _, _ := bytes.Cut(rest[at1+1:], []byte("/"))
		all = append(all, entry{section: string(host), key: "password", value: value, line: at, removable: true, obstacle: obstacle})
	})
	return all
}

func readPgpass(text []byte, _ []string) (all []entry) {
	eachLine(text, func(line []byte, at [2]int) {
		if parts := bytes.SplitN(line, []byte(":"), 5); len(parts) == 5 && line[0] != '#' {
			e := entry{section: string(parts[0]), key: "password", value: parts[4], line: at, removable: true}
			if bytes.IndexByte(line, '\\') >= 0 {
				e.obstacle = escapes
			}
			all = append(all, e)
		}
	})
	return all
}

// readWhole: the file is the value, and goes with it.
func readWhole(text []byte, _ []string) []entry {
	return []entry{{value: bytes.TrimSpace(text), removable: true, line: [2]int{0, len(text)}}}
}

// readExistence: what is in the file is not looked at.
func readExistence(text []byte, _ []string) []entry {
	if len(text) == 0 {
		return nil
	}
	return []entry{{value: text[:1]}}
}
