//go:build linux || darwin

package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// place is the directory of a ledger with its lock held.
type place struct {
	dir  string
	lock *os.File
}

func (p *place) database() string { return filepath.Join(p.dir, "ledger.db") }

func (p *place) journal() string { return filepath.Join(p.dir, journalName) }

// openJournal opens the journal or makes an empty file.
func (p *place) openJournal() (*os.File, error) { return privateFile(p.journal()) }

// hasJournal reports whether there is anything in the journal's place.
func (p *place) hasJournal() bool {
	fi, err := os.Lstat(p.journal())
	return err == nil && !(fi.Mode().IsRegular() && fi.Size() == 0)
}

func (p *place) release() error { return p.lock.Close() }

// claimPlace makes or checks the directory and the files in it, and takes the
// lock. No two brokers get past it.
func claimPlace(dir string) (*place, error) {
	dir, err := privateDirectory(dir)
	if err != nil {
		return nil, err
	}
	lock, err := privateFile(filepath.Join(dir, "ledger.lock"))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	p := &place{dir, lock}
	if err := p.makeDatabase(); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

// makeDatabase runs under the lock and before SQLite opens the file: closing
// a descriptor of an open database would drop SQLite's locks. SQLite gives
// the files beside it the mode of this one.
func (p *place) makeDatabase() error {
	for _, beside := range []string{"-wal", "-shm", "-journal"} { // SQLite would read them
		if err := checkBeside(p.database() + beside); err != nil {
			return err
		}
	}
	db, err := privateFile(p.database())
	if err != nil {
		return err
	}
	if err := errors.Join(db.Sync(), db.Close()); err != nil {
		return fmt.Errorf("making %s: %w", p.database(), err)
	}
	d, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("syncing %s: %w", p.dir, err)
	}
	return nil
}

// privateDirectory returns dir with links resolved, made 0700 if it was
// absent. One of another account is refused, and so is one that is open to
// others, for what lies in it may not be ours; only an empty one is closed to
// them.
func privateDirectory(dir string) (string, error) {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	made := err == nil
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if made { // the umask may have taken bits
		if err := os.Chmod(dir, 0o700); err != nil {
			return "", err
		}
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer d.Close()
	st, err := ownStat(d)
	if err != nil {
		return "", err
	}
	if st.Mode&0o077 == 0 {
		return dir, nil
	}
	if _, err := d.Readdirnames(1); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("%s is open to other accounts (mode %04o)", dir, st.Mode&0o7777)
	}
	return dir, d.Chmod(0o700)
}

// privateFile opens or makes a regular file of this account with mode 0600,
// whatever the umask.
func privateFile(path string) (*os.File, error) {
	flags := os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		if err := f.Chmod(0o600); err != nil { // the umask may have taken bits
			f.Close()
			return nil, err
		}
		return f, nil
	}
	if !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if f, err = os.OpenFile(path, flags, 0); err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("%s is a symbolic link", path)
		}
		return nil, err
	}
	if err := checkPrivate(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkBeside(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkPrivate(f)
}

func checkPrivate(f *os.File) error {
	st, err := ownStat(f)
	if err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fmt.Errorf("%s is not a regular file", f.Name())
	}
	if st.Mode&0o077 != 0 {
		return fmt.Errorf("%s is open to other accounts (mode %04o)", f.Name(), st.Mode&0o7777)
	}
	return nil
}

func ownStat(f *os.File) (*syscall.Stat_t, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%s: the owner cannot be read", f.Name())
	}
	if int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to account %d, not to %d", f.Name(), st.Uid, os.Geteuid())
	}
	return st, nil
}
