package ambient

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// place is one row of places.txt.
type place struct {
	tool, path, format, kind, service, signOut, source string
	keys                                               []string
}

//go:embed places.txt
var placesText string

//go:embed variables.txt
var variablesText string

// The texts are part of this program and tested: they parse, or nothing here
// works.
var (
	places = sync.OnceValue(func() []place {
		rows, err := parsePlaces(placesText)
		if err != nil {
			panic(err)
		}
		return rows
	})
	services = sync.OnceValue(func() map[string]string {
		rows, err := parseVariables(variablesText)
		if err != nil {
			panic(err)
		}
		return rows
	})
)

func parsePlaces(text string) ([]place, error) {
	var all []place
	err := eachRow(text, 8, func(c []string) error {
		p := place{tool: c[0], path: c[1], format: c[2], kind: c[4], service: dash(c[5]), signOut: dash(c[6]), source: c[7]}
		if readers[p.format] == nil {
			return fmt.Errorf("unknown format %q", p.format)
		}
		for key := range strings.SplitSeq(dash(c[3]), ",") {
			if key = strings.TrimSpace(key); key != "" {
				p.keys = append(p.keys, key)
			}
		}
		if len(p.keys) == 0 != slices.Contains([]string{"file", "exists"}, p.format) {
			return errors.New("keys go with every format but file and exists")
		}
		all = append(all, p)
		return nil
	})
	return all, err
}

func parseVariables(text string) (map[string]string, error) {
	all := map[string]string{}
	err := eachRow(text, 3, func(c []string) error {
		all[c[0]] = c[1]
		return nil
	})
	return all, err
}

// eachRow calls fn for each row of a table and refuses what is not one.
func eachRow(text string, cells int, fn func([]string) error) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, "|")
		if len(row) != cells {
			return fmt.Errorf("line %d: %d cells, want %d", number, len(row), cells)
		}
		for i := range row {
			if row[i] = strings.TrimSpace(row[i]); row[i] == "" {
				return fmt.Errorf("line %d: an empty cell", number)
			}
		}
		if !strings.HasPrefix(row[cells-1], "https://") {
			return fmt.Errorf("line %d: no source", number)
		}
		if err := fn(row); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}
