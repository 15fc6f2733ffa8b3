package peer

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
)

// Kinds of programs whose file does not say whose code runs, or on whose
// behalf. See programs.txt, which alone says which they are.
type programKind string

const (
	runtimeProgram programKind = "runtime"
	shellProgram   programKind = "shell"
	packageRunner  programKind = "package-runner"
	wrapperProgram programKind = "wrapper"
	supervisor     programKind = "supervisor"
)

// kindWords is what stands on a card behind "runtime: NAME".
var kindWords = map[programKind]string{
	runtimeProgram: "", shellProgram: " (shell)", packageRunner: " (package runner)", wrapperProgram: " (wrapper)", supervisor: "",
}

// programRow is one name of the table and where its row knows it from.
type programRow struct {
	kind   programKind
	source string // manual pages or a document
}

//go:embed programs.txt
var programsText string

// programs is the table by name. The text is part of this program and tested:
// it parses, or nothing here works.
var programs = sync.OnceValue(func() map[string]programRow {
	table, err := parsePrograms(programsText)
	if err != nil {
		panic(err)
	}
	return table
})

// parsePrograms reads the table and refuses what is not exactly a table.
func parsePrograms(text string) (map[string]programRow, error) {
	table := make(map[string]programRow, 128)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := parseProgramRow(table, line); err != nil {
			return nil, fmt.Errorf("programs, line %d: %w", number, err)
		}
	}
	if len(table) == 0 {
		return nil, errors.New("programs: no row")
	}
	return table, nil
}

func parseProgramRow(table map[string]programRow, line string) error {
	cells := strings.Split(line, "|")
	if len(cells) != 3 {
		return fmt.Errorf("%d cells, want kind, names and source", len(cells))
	}
	kind, source := programKind(strings.TrimSpace(cells[0])), strings.TrimSpace(cells[2])
	if _, ok := kindWords[kind]; !ok {
		return fmt.Errorf("unknown kind %q", kind)
	}
	if !sourced(source) {
		return fmt.Errorf("%q is neither manual pages nor a document", source)
	}
	for name := range strings.SplitSeq(cells[1], ",") {
		name = strings.TrimSpace(name)
		if !isProgramName(name) {
			return fmt.Errorf("%q is no name of a program", name)
		}
		if _, twice := table[name]; twice {
			return fmt.Errorf("%s stands twice", name)
		}
		table[name] = programRow{kind, source}
	}
	return nil
}

// isProgramName allows what programs are called, and no path.
func isProgramName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return name != "" && strings.TrimLeft(name, letters+"0123456789_.-") == "" && strings.Contains(letters, name[:1])
}

// sourced reports whether a cell says where its row is known from: a document
// or manual pages.
func sourced(source string) bool {
	if strings.HasPrefix(source, "http") {
		host, path, ok := strings.Cut(source[strings.Index(source, ":")+1:], ".")
		return ok && len(host) > len("//") && strings.HasPrefix(host, "//") && strings.Contains(path, "/") && !strings.Contains(source, " ")
	}
	for page := range strings.SplitSeq(source, ",") {
		name, section, ok := strings.Cut(strings.TrimSpace(page), "(")
		if !ok || !isProgramName(name) || len(section) != 2 || section[0] < '1' || section[0] > '8' || section[1] != ')' {
			return false
		}
	}
	return true
}

// inlineFlags take code or a module name instead of a script.
var inlineFlags = map[string]bool{
	"-c": true, "-e": true, "-m": true, "-p": true, "-r": true, "--eval": true, "--print": true,
}

// runtimeOf names the runtime that exe is, or returns nothing. The script is
// what the arguments claim: the first one that is not an option.
func runtimeOf(exe string, argv []string) (name, script string) {
	name = runtimeName(filepath.Base(exe))
	if name == "" || len(argv) == 0 {
		return name, ""
	}
	for _, arg := range argv[1:] {
		if inlineFlags[arg] {
			return name, ""
		}
		if arg != "" && arg[0] != '-' {
			return name, arg
		}
	}
	return name, ""
}

// runtimeName returns the name in the table, with a major version, of what is
// not a supervisor.
func runtimeName(base string) string {
	name, version := splitVersion(base)
	p, ok := programs()[name]
	if !ok || p.kind == supervisor {
		return ""
	}
	return name + majorOf(version)
}

// splitVersion cuts a version off the name of a program, if the table does
// not have the whole name.
func splitVersion(base string) (name, version string) {
	if _, ok := programs()[base]; ok {
		return base, ""
	}
	name = strings.TrimRight(base, "0123456789.-")
	return name, base[len(name):]
}

// majorOf keeps "3" of "3.12", since people say python3.
func majorOf(version string) string {
	major, _, _ := strings.Cut(version, ".")
	if strings.Contains(major, "-") {
		return ""
	}
	return major
}

// runtimeWord is what a card says of a runtime by its name.
func runtimeWord(name string) string {
	base, _ := splitVersion(name)
	return "runtime: " + name + kindWords[programs()[base].kind]
}

// supervises reports whether one of the names of a process is a supervisor's:
// what has such a parent has no agent behind it. Being listed can only refuse.
// The kernel does not tell who is a subreaper, so this is by name.
func supervises(names ...string) bool {
	for _, name := range names {
		if programs()[filepath.Base(name)].kind == supervisor {
			return true
		}
	}
	return false
}
