// Package sshconfig reads what OpenSSH's client knows of hosts: its
// configuration and its lists of known keys. It changes nothing, runs nothing
// and connects to nothing.
//
// It trusts the files as far as the person who owns them: their paths are given,
// their size and nesting are bounded. It is for taking hosts over into an access
// file, so that what it does not understand is as important as what it does:
// every directive that applies to a host comes with the file and the line that
// it stands in, and a condition that cannot be judged without running something
// is a note.
//
// A line is 'keyword arguments' or 'keyword=arguments'; arguments may be quoted;
// '#' begins a comment. The first value of a keyword counts, except where values
// add up. Host and Match begin a block, Include reads other files in place.
package sshconfig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of what is read.
const (
	maxFile       = 1 << 20
	maxDepth      = 16
	maxDirectives = 10_000
)

// Directive is one line.
type Directive struct {
	Key  string // in lower case
	Name string // as it is written
	Args []string
	Place
	when []condition
}

// Place is where something stands.
type Place struct {
	File string
	Line int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// condition is a block that a directive stands in.
type condition struct {
	patterns []string
	resolved bool // of the host name that was set so far, not of the name that was asked for
	never    bool // cannot be judged
}

// Note is something that was not understood.
type Note struct {
	Place
	Text string
}

// Config is what a configuration says, in order.
type Config struct {
	directives []Directive
	Notes      []Note
}

// Read reads a configuration and the files that it includes. home is where '~'
// and relative includes lead.
func Read(path, home string) (*Config, error) {
	r := &reader{home: home, config: &Config{}}
	if err := r.file(path, nil, 0); err != nil {
		return nil, err
	}
	return r.config, nil
}

type reader struct {
	home   string
	config *Config
}

// file reads one file. outer are the blocks that its Include stands in.
func (r *reader) file(path string, outer []condition, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: included more than %d deep", path, maxDepth)
	}
	text, err := readFile(path)
	if err != nil {
		return err
	}
	when := outer
	line := 0
	for text := range strings.Lines(text) {
		line++
		name, args, err := splitLine(text)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
		if name == "" {
			continue
		}
		d := Directive{Key: strings.ToLower(name), Name: name, Args: args, Place: Place{path, line}, when: when}
		switch d.Key {
		case "host":
			when = append(outer[:len(outer):len(outer)], condition{patterns: args})
			d.when = outer
			r.add(d)
		case "match":
			when = append(outer[:len(outer):len(outer)], r.match(d))
		case "include":
			if err := r.include(d, depth); err != nil {
				return err
			}
		default:
			r.add(d)
		}
		if len(r.config.directives) > maxDirectives {
			return fmt.Errorf("%s: more than %d lines altogether", path, maxDirectives)
		}
	}
	return nil
}

func (r *reader) add(d Directive) { r.config.directives = append(r.config.directives, d) }

func (r *reader) note(p Place, format string, args ...any) {
	r.config.Notes = append(r.config.Notes, Note{p, fmt.Sprintf(format, args...)})
}

// match reads the condition of a Match block. Those that are judged by running a
// program, or by what only a connection knows, are not judged.
func (r *reader) match(d Directive) condition {
	if len(d.Args) == 1 && strings.EqualFold(d.Args[0], "all") {
		return condition{patterns: []string{"*"}}
	}
	if len(d.Args) == 2 {
		switch strings.ToLower(d.Args[0]) {
		case "originalhost":
			return condition{patterns: strings.Split(d.Args[1], ",")}
		case "host":
			return condition{patterns: strings.Split(d.Args[1], ","), resolved: true}
		}
	}
	r.note(d.Place, "Match %s: the block is left out, for its condition cannot be judged here", strings.Join(d.Args, " "))
	return condition{never: true}
}

func (r *reader) include(d Directive, depth int) error {
	for _, pattern := range d.Args {
		path := expandHome(pattern, r.home)
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.home, ".ssh", path)
		}
		found, err := filepath.Glob(path)
		if err != nil {
			return fmt.Errorf("%s: Include %q: %w", d.Place, pattern, err)
		}
		for _, f := range found {
			if err := r.file(f, d.when, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFile reads a regular file, through whatever link leads to it.
func readFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if len(text) > maxFile {
		return "", fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return string(text), nil
}

func expandHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return path
}

// splitLine parts a line into its keyword and arguments.
func splitLine(line string) (name string, args []string, err error) {
	line = strings.Trim(line, " \t\r\n\f")
	if line == "" || line[0] == '#' {
		return "", nil, nil
	}
	end := strings.IndexAny(line, " \t=")
	if end < 0 {
		return line, nil, nil
	}
	name = line[:end]
	rest := strings.TrimLeft(line[end:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	args, err = splitArgs(rest)
	return name, args, err
}

// splitArgs parts arguments as OpenSSH does: by blanks outside of quotes.
func splitArgs(s string) ([]string, error) {
	var args []string
	for {
		if s = strings.TrimLeft(s, " \t"); s == "" || s[0] == '#' {
			return args, nil
		}
		var b strings.Builder
		var quote byte
		i := 0
		for ; i < len(s); i++ {
			c := s[i]
			switch {
			case c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\'' || s[i+1] == '\\' || quote == 0 && s[i+1] == ' '):
				i++
				b.WriteByte(s[i])
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote != 0 && c == quote:
				quote = 0
			case quote == 0 && (c == ' ' || c == '\t'):
			default:
				b.WriteByte(c)
			}
			if quote == 0 && (c == ' ' || c == '\t') {
				break
			}
		}
		if quote != 0 {
			return nil, errors.New("a quote does not end")
		}
		args, s = append(args, b.String()), s[min(i, len(s)):]
	}
}
