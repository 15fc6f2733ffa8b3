package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ownNames are how the names of Yett's own files begin, in its data and state
// directories; a leading dot is a file that was being written.
var ownNames = []string{"vault.", "ledger.", "broker.", "installed."}

// ownEndings are how the names of kept bodies end; they begin with a number.
var ownEndings = []string{".body", ".stderr", ".stdout-tail", ".stderr-tail"}

func ownName(name string) bool {
	if slices.ContainsFunc(ownEndings, func(s string) bool { return strings.HasSuffix(strings.TrimSuffix(name, ".part"), s) }) {
		return true
	}
	name = strings.TrimPrefix(name, ".")
	return slices.ContainsFunc(ownNames, func(p string) bool { return strings.HasPrefix(name, p) })
}

// DataThere reports whether there is a data directory of this account.
func (p Place) DataThere(data string) (bool, error) {
	info, err := os.Lstat(data)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, &UnsafeError{Path: data, Why: "is not a directory"}
	}
	return true, p.ownDirectory(data)
}

// Purge removes Yett's files from its data and state directories, and these if
// nothing else lies in them. It returns what it left. Nobody may use them
// meanwhile.
func (p Place) Purge(data string) (left []string, err error) {
	state := filepath.Dir(p.recordPath())
	for _, dir := range []string{filepath.Join(state, "run"), state, filepath.Join(data, "bodies"), data} {
		there, err := p.DataThere(dir)
		if err != nil {
			return left, err
		}
		if !there {
			continue
		}
		kept, err := purgeDirectory(dir)
		left = append(left, kept...)
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

func purgeDirectory(dir string) (left []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !ownName(e.Name()) || e.IsDir() {
			left = append(left, path)
			continue
		}
		if err := os.Remove(path); err != nil {
			return left, err
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	return nil, os.Remove(dir)
}
