// Package ambient finds credentials that every program of the login can use
// without asking anybody: files in the usual places, files of variables in the
// project, keys without a passphrase, what an ssh-agent holds, and variables of
// the environment.
//
// It reads as the account and trusts nothing that it reads: files are bounded,
// what looks like another thing is left alone, and no text of a file but names
// of sections, hosts and keys leaves this package, each only if it is short and
// plain. A value leaves it through Value alone, for the one finding that a
// person picked, and is the caller's to clear. There is no backup of what
// Remove takes away: it would be the secret again.
//
// The places are the table places.txt, and variables whose service is known the
// table variables.txt; both say in each row where that is known from.
package ambient

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Finding is one credential that lies open, never its value.
type Finding struct {
	Name    string `json:"name"`    // to pick it by
	Kind    string `json:"kind"`    // token, password, key pair, private key, agent key, variable, helper
	Path    string `json:"path"`    // file or socket; "" for a variable
	Where   string `json:"where"`   // in the file: section and key
	Readers string `json:"readers"` // who can read it
	Service string `json:"service"` // a preset, or an origin; "" if it is for no known place
	SignOut string `json:"sign_out"`
	Source  string `json:"source"` // where the place is known from

	// Obstacle says why its value cannot be taken from there; "" if it can.
	Obstacle string `json:"obstacle,omitempty"`

	format string
	keys   []string // that were looked for in the file
	at     int      // which of the file's values of those keys
}

// Kinds of findings that are not from the table.
const (
	KindPrivateKey = "private key"
	KindAgentKey   = "agent key"
	KindVariable   = "variable"
	KindHelper     = "helper"
)

// Account is where to look.
type Account struct {
	Homes     []string // home directories
	Project   string   // the directory whose tree has files of variables; "" for none
	Variables []string // NAME=value, as os.Environ has them
	AgentPath string   // socket of an ssh-agent; "" for none
}

// Find looks everywhere. What could not be read is told, not passed over.
func Find(ctx context.Context, a Account) (found []Finding, unread []string) {
	var s scan
	for _, home := range a.Homes {
		s.home(home)
	}
	if a.Project != "" {
		s.project(ctx, a.Project)
	}
	s.variables(a.Variables)
	if a.AgentPath != "" {
		s.agent(ctx, a.AgentPath)
	}
	s.number()
	return s.found, s.unread
}

// scan collects findings.
type scan struct {
	found  []Finding
	unread []string
}

func (s *scan) add(f Finding) {
	if !slices.ContainsFunc(s.found, func(g Finding) bool {
		return g.Path == f.Path && g.Where == f.Where && g.at == f.at && g.format == f.format
	}) {
		s.found = append(s.found, f)
	}
}

func (s *scan) failed(err error) { s.unread = append(s.unread, err.Error()) }

// number makes names unique: those of equal name get -2, -3 and so on.
func (s *scan) number() {
	seen := map[string]int{}
	for i := range s.found {
		f := &s.found[i]
		seen[f.Name]++
		if n := seen[f.Name]; n > 1 {
			f.Name = fmt.Sprintf("%s-%d", f.Name, n)
		}
	}
}

// maxWord is the longest text of a file that is shown.
const maxWord = 64

// word lets through what is a name: short and plain. Anything else could be a
// value that stands where a name belongs.
func word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/@+", r)
	}
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '@'); i >= 0 && strings.ContainsAny(s[:i], ":/") {
		s = withoutUser(s)
	}
	if s == "" || len(s) > maxWord || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return "?"
	}
	return s
}
