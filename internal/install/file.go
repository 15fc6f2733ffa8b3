package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/durable"
)

// largest is the size of a file that is still taken for a configuration.
const largest = 32 << 20

// BackupSuffix is appended to a file's name for what it was before; a number
// follows where that name is taken.
const BackupSuffix = ".yett-backup"

// File is one file: what it is and what it becomes.
type File struct {
	Path   string // as its client names it
	Real   string // where it lies; another path behind a symbolic link
	Exists bool
	Before []byte
	After  []byte
	Remove bool // it was made here and nothing is left in it

	mode fs.FileMode
	made []string // directories that writing it made
}

// ErrChanged: the file is not what was shown any more.
var ErrChanged = errors.New("it has changed meanwhile; nothing was written")

// UnsafeError is a file that is not written to.
type UnsafeError struct {
	Path string
	Why  string
	Real string // where a link leads to outside of the home directory
}

func (e *UnsafeError) Error() string { return e.Path + " " + e.Why }

// open reads a file that may be missing. named means that the person gave the
// path: then it may lie outside of the home directory.
func (p Place) open(path string, named bool) (*File, error) {
	f := &File{Path: path, mode: 0o600}
	real, err := resolve(path)
	if err != nil {
		return nil, err
	}
	f.Real = real
	home, err := filepath.EvalSymlinks(p.Home)
	if err != nil {
		return nil, err
	}
	if !named && !within(home, real) {
		return nil, &UnsafeError{Path: path, Real: real, Why: "is a symbolic link that leads out of the home directory, to " + real}
	}
	if err := p.ownDirectory(filepath.Dir(real)); err != nil {
		return nil, err
	}
	if err := f.read(p.UID); err != nil {
		return nil, err
	}
	f.After = f.Before
	return f, nil
}

// resolve follows links in a path whose end may be missing, but no link to
// nothing.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", &UnsafeError{Path: path, Why: "is a symbolic link to nothing"}
	}
	dir, err := resolve(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// ownDirectory reports whether a file in dir, or in the nearest directory above
// that exists, is this account's to replace.
func (p Place) ownDirectory(dir string) error {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	if errors.Is(err, fs.ErrNotExist) && dir != "/" {
		return p.ownDirectory(filepath.Dir(dir))
	}
	switch sticky := st.Uid == 0 && st.Mode&unix.S_ISVTX != 0; {
	case err != nil:
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &UnsafeError{Path: dir, Why: "is not a directory"}
	case int(st.Uid) != p.UID && !sticky:
		return &UnsafeError{Path: dir, Why: fmt.Sprintf("is a directory of account %d", st.Uid)}
	case st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0:
		return &UnsafeError{Path: dir, Why: "is a directory that everybody may write to"}
	}
	return nil
}

func (f *File) read(uid int) error {
	opened, err := os.OpenFile(f.Real, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(opened.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: f.Real, Err: err}
	}
	switch {
	case !info.Mode().IsRegular():
		return &UnsafeError{Path: f.Path, Why: "is not a regular file"}
	case int(st.Uid) != uid:
		return &UnsafeError{Path: f.Path, Why: fmt.Sprintf("belongs to account %d", st.Uid)}
	case info.Size() > largest:
		return &UnsafeError{Path: f.Path, Why: fmt.Sprintf("is larger than %d MiB", largest>>20)}
	}
	f.Exists, f.mode = true, info.Mode().Perm()
	f.Before, err = io.ReadAll(io.LimitReader(opened, largest))
	return err
}

// Changed reports whether writing it would change anything.
func (f *File) Changed() bool { return f.Remove || !f.Exists || !bytes.Equal(f.Before, f.After) }

// unchanged reports whether the file still is what was shown.
func (f *File) unchanged(p Place) error {
	now, err := p.open(f.Path, true)
	if err != nil {
		return err
	}
	if now.Real != f.Real || now.Exists != f.Exists || !bytes.Equal(now.Before, f.Before) {
		return fmt.Errorf("%s: %w", f.Path, ErrChanged)
	}
	return nil
}

// put puts the new text in place.
func (f *File) put(p Place) error {
	if err := f.unchanged(p); err != nil {
		return err
	}
	return durable.ReplaceFile(f.Real, f.After, f.mode)
}

// write puts the new text in place, or takes the file away, behind a copy of
// the old text, and returns the copy's path.
func (f *File) write(p Place) (backup string, err error) {
	if err := f.unchanged(p); err != nil {
		return "", err
	}
	if f.Remove { // all of it was made here
		return "", os.Remove(f.Real)
	}
	if f.Exists {
		if backup, err = keep(f.Real, f.Before); err != nil {
			return "", fmt.Errorf("keeping a copy of %s: %w", f.Path, err)
		}
	}
	return backup, f.put(p)
}

// keep puts a copy beside a file, mode 0600, under the first free name. A copy
// that is there and equal is enough.
func keep(path string, text []byte) (string, error) {
	for n := range 1000 {
		name := path + BackupSuffix
		if n > 0 {
			name = fmt.Sprintf("%s%s.%d", path, BackupSuffix, n)
		}
		err := durable.CreateFile(name, text)
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
		if old, err := durable.ReadFile(name, largest); err == nil && bytes.Equal(old, text) {
			return name, nil
		}
	}
	return "", errors.New("there are a thousand copies already")
}

// missingDirectories are those above path that do not exist, the uppermost first.
func missingDirectories(path string) []string {
	var missing []string
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append([]string{dir}, missing...)
	}
	return missing
}
