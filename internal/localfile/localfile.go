// Package localfile opens files of this machine for a program that others ask:
// regular files below a directory that the person has named, by a path on which
// no symbolic link is followed, not even to the directory itself.
//
// It trusts the name of the directory, which comes from the access file, and
// nothing about the path below it, nor about what lies there: the processes
// that ask can write in such directories, and change them meanwhile. Each step
// holds on to what the step before has opened.
package localfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// ErrExists means that a file is there and was not to be replaced.
var ErrExists = errors.New("a file is there already, and is not to be overwritten")

// below returns the way from dir to file, which is one.
func below(dir, file string) (string, error) {
	rel, ok := strings.CutPrefix(file, dir+"/")
	if !ok || path.Clean(file) != file || path.Clean(dir) != dir || !strings.HasPrefix(dir, "/") {
		return "", fmt.Errorf("%s does not lie in %s", file, dir)
	}
	return rel, nil
}

// openParent opens the directory of a file in dir, and returns the file's name
// in it.
func openParent(dir, file string, apart Apart) (*os.File, string, error) {
	rel, err := below(dir, file)
	if err != nil {
		return nil, "", err
	}
	d, err := openDirectory(dir)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", dir, err)
	}
	if parent := path.Dir(rel); parent != "." {
		top := d
		d, err = directoryBelow(top, parent)
		top.Close()
		if err != nil {
			return nil, "", fmt.Errorf("opening %s: %w", path.Dir(file), err)
		}
	}
	if err := apart.refuse(d, file); err != nil {
		d.Close()
		return nil, "", err
	}
	return d, path.Base(rel), nil
}

// Open opens the regular file at an absolute path in dir for reading, unless it
// is kept apart. A file with several names is refused: one of them may
// lie elsewhere.
func Open(dir, file string, apart Apart) (*os.File, error) {
	d, name, err := openParent(dir, file, apart)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, err := openBelow(d, name)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", file, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("looking at %s: %w", file, err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", file)
	case names(info) != 1:
		err = fmt.Errorf("%s has another name besides (a hard link), which may lie elsewhere", file)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// New is a file that is being made. It lies under a temporary name beside its
// place until Place.
type New struct {
	file string
	name string // in directory
	part string // likewise; empty once it has its place
	dir  *os.File
	data *os.File
}

// Create begins a file at an absolute path in dir, of mode 0600, unless it is kept
// apart. Without overwrite there must be nothing at its place.
func Create(dir, file string, overwrite bool, apart Apart) (*New, error) {
	d, name, err := openParent(dir, file, apart)
	if err != nil {
		return nil, err
	}
	n := &New{file: file, name: name, part: ".yett-" + rand.Text(), dir: d}
	switch mode, err := modeIn(d, n.name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		d.Close()
		return nil, fmt.Errorf("looking at %s: %w", file, err)
	case !mode.IsRegular():
		d.Close()
		return nil, fmt.Errorf("%s is no regular file", file)
	case !overwrite:
		d.Close()
		return nil, fmt.Errorf("%s: %w", file, ErrExists)
	}
	if n.data, err = createIn(d, n.part); err != nil {
		d.Close()
		return nil, fmt.Errorf("making a file beside %s: %w", file, err)
	}
	return n, nil
}

func (n *New) Write(b []byte) (int, error) { return n.data.Write(b) }

// Place gives the file its name and returns once it would survive a power cut.
// replaced tells that a file was there.
func (n *New) Place(overwrite bool) (replaced bool, err error) {
	if err := n.data.Sync(); err != nil {
		return false, fmt.Errorf("syncing %s: %w", n.file, err)
	}
	_, err = modeIn(n.dir, n.name)
	replaced = err == nil
	if err := renameIn(n.dir, n.part, n.name, overwrite); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = ErrExists
		}
		return false, fmt.Errorf("putting %s in its place: %w", n.file, err)
	}
	n.part = ""
	if err := n.dir.Sync(); err != nil {
		return replaced, fmt.Errorf("syncing the directory of %s: %w", n.file, err)
	}
	return replaced, nil
}

// Placed reports whether the file has its name, also where Place has failed.
func (n *New) Placed() bool { return n.part == "" }

// Close ends the use of the file. One that was not placed is removed.
func (n *New) Close() error {
	var err error
	if n.part != "" {
		err = removeIn(n.dir, n.part)
	}
	return errors.Join(err, n.data.Close(), n.dir.Close())
}
