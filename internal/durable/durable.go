// Package durable replaces and reads small private files so that a crash at
// any point leaves the old content or the new one, never neither and never a
// mixture. It trusts the directory it works in to belong to the account alone;
// it does not trust what lies at the path, and follows no symlink there.
//
// Writers of one path must exclude each other; the package takes no lock.
package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Previous is appended to a path to name its previous generation.
const Previous = ".prev"

// WriteFile replaces path with data, mode 0600 whatever the umask is, and
// returns once the replacement would survive a power cut. With keepPrevious
// the content that is replaced stays at path+Previous.
//
// After an error the old content is in place, except where only the last step
// failed (syncing the directory): then the new content is in place but may
// not survive a power cut. A caller that must know reads the file.
func WriteFile(path string, data []byte, keepPrevious bool) error {
	return writeFile(realDisk{}, path, data, keepPrevious)
}

// ReplaceFile is WriteFile for a file that has a mode of its own.
func ReplaceFile(path string, data []byte, mode os.FileMode) error {
	return replaceFile(realDisk{}, path, data, mode, false)
}

func writeFile(d disk, path string, data []byte, keepPrevious bool) error {
	return replaceFile(d, path, data, 0o600, keepPrevious)
}

func replaceFile(d disk, path string, data []byte, mode os.FileMode, keepPrevious bool) (err error) {
	old, err := regularOrAbsent(path)
	if err != nil {
		return err
	}

	temp := tempName(path)
	defer func() {
		if err != nil {
			_ = d.remove(temp) // already renamed or never made: nothing to remove
		}
	}()
	// A crash from here to the rename leaves a temporary file, mode 0600, that
	// nobody reads; RemoveLeftovers takes it away. Path is untouched.
	if err := writeTemp(d, temp, data, mode); err != nil {
		return fmt.Errorf("writing a new %s: %w", filepath.Base(path), err)
	}
	if keepPrevious && old {
		// A crash in here leaves path and its previous generation both whole:
		// path itself is never moved, it only gets a second name.
		if err := keep(d, path); err != nil {
			return fmt.Errorf("keeping the previous %s: %w", filepath.Base(path), err)
		}
	}
	// A crash before the rename: path is old. After it: path is new, and its
	// content is on disk, since it was synced under the temporary name. The
	// order in which the file system writes down the two renames is its own
	// affair; each outcome has a whole file at path.
	if err := d.rename(temp, path); err != nil {
		return fmt.Errorf("replacing %s: %w", filepath.Base(path), err)
	}
	// A power cut before this sync may bring the old content back, whole.
	if err := d.syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("syncing the directory after replacing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// writeTemp makes the file, fills it and syncs it. The mode is set through
// the descriptor, before the first byte, because the umask may have taken
// bits away.
func writeTemp(d disk, temp string, data []byte, mode os.FileMode) (err error) {
	f, err := d.create(temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return fill(d, f, data, mode)
}

func fill(d disk, f *os.File, data []byte, mode os.FileMode) error {
	if err := d.chmod(f, mode); err != nil {
		return err
	}
	n, err := d.write(f, data)
	if err != nil {
		return err
	}
	if n != len(data) {
		return io.ErrShortWrite
	}
	return d.sync(f)
}

// keep gives the present file its second name. The link is made under a
// temporary name first, because link refuses to replace.
func keep(d disk, path string) error {
	temp := tempName(path)
	if err := d.link(path, temp); err != nil {
		return err
	}
	err := d.rename(temp, path+Previous)
	// rename does nothing, and says so to nobody, when both names already are
	// the same file (a crash came between this point and the final rename);
	// then the temporary name is still there.
	if e := d.remove(temp); err == nil && e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = e
	}
	return err
}

// RemoveLeftovers removes the temporary files that earlier, killed writers of
// path left behind. Call it only while other writers of path are excluded.
func RemoveLeftovers(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("looking for leftovers: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix(path)) && e.Type().IsRegular() {
			if err := os.Remove(filepath.Join(filepath.Dir(path), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("removing a leftover: %w", err)
			}
		}
	}
	return nil
}

// ReadFile reads a private file of at most limit bytes. It refuses a symlink,
// anything but a regular file, a file of another account, and one that others
// may read or write.
func ReadFile(path string, limit int64) ([]byte, error) {
	// O_NONBLOCK: opening a FIFO that was put there must not hang.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symlink: %w", path, ErrUnsafe)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(path, info); err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes: %w", path, info.Size(), ErrTooLarge)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit { // it grew while it was read
		return nil, fmt.Errorf("%s: %w", path, ErrTooLarge)
	}
	return data, nil
}

var (
	// ErrUnsafe: what lies at the path is not a private file of this account.
	ErrUnsafe = errors.New("not a private file of this account")
	// ErrTooLarge: the file is larger than the caller allows.
	ErrTooLarge = errors.New("larger than allowed")
)

func checkPrivate(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: %w", path, ErrUnsafe)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another account: %w", path, ErrUnsafe)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is open to others (mode %#o): %w", path, info.Mode().Perm(), ErrUnsafe)
	}
	return nil
}

// regularOrAbsent refuses to write over anything but a regular file. Between
// this look and the rename the path can change only by the account's own hand,
// and the rename would replace a symlink, not follow it.
func regularOrAbsent(path string) (exists bool, err error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.Mode()&fs.ModeSymlink != 0:
		return false, fmt.Errorf("%s is a symlink: %w", path, ErrUnsafe)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a regular file: %w", path, ErrUnsafe)
	}
	return true, nil
}

func tempPrefix(path string) string { return "." + filepath.Base(path) + ".tmp-" }

func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), tempPrefix(path)+rand.Text())
}
