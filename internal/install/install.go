// Package install puts Yett where others start it: an entry in the
// configuration of an agent's host, and units of the account's service manager.
// It says what it will write, as the text before and after, and writes when it
// is told to; it asks nobody anything.
//
// Configurations are edited in place. What an edit does not name keeps every
// byte: comments, the order of keys, line ends. A text that its client could not
// read is an error with the line, and an edit that would make one is never
// written. clients.toml is the table of clients.
//
// It trusts the account's own files to be the account's, and looks: a file of
// another account, in a directory of another account, or one that a symbolic
// link leads to outside of the home directory, is not touched. What lies at a
// path by the time it is written must be what was shown.
//
// What was put where is kept in HOME/.local/state/yett/installed.json, before
// it is put there, so that taking it away takes away that and nothing else:
//
//	{"version": 1,
//	 "files": {PATH: {"client", "created", "directories", "added": [
//	            {"at": [NAME, …], "element"?, "made"?, "was"?}]}},
//	 "units": {PATH: SHA-256 in hex}}
//
// An addition is a member at a path, or the element of an array there; made
// counts the containers above that were made for it; was is the value that it
// replaced. The file is a claim of this account: it can only name what is
// removed, and each file is judged again before.
package install

import (
	"path/filepath"
	"strings"
)

// Place is whose files are written.
type Place struct {
	Home   string // the account's, from the account database
	UID    int
	System string // linux or macos
}

// path is a path below the home directory.
func (p Place) path(below string) string { return filepath.Join(p.Home, below) }

// within reports whether path lies in dir.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
