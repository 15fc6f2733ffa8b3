package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// errHeld says that another open file holds the lock.
	errHeld = errors.New("the lock is held")
	// errReplaced says that the locked file is no longer the one at the name.
	errReplaced = errors.New("the lock file was replaced")
)

// lock is an exclusive flock on a file that is never removed: a file that came
// and went would let two brokers each lock their own.
type lock struct{ file *os.File }

// takeLock takes the lock in d without waiting. Where it is held the error is
// errHeld, and the holder is what the file says.
func takeLock(d *directory, mine holder) (*lock, holder, error) {
	for {
		f, err := openLock(d)
		if err != nil {
			return nil, holder{}, err
		}
		err = d.seize(f)
		if err == nil {
			if err = writeHolder(f, mine); err == nil {
				return &lock{file: f}, holder{}, nil
			}
		}
		other := readHolder(f)
		f.Close()
		switch {
		case errors.Is(err, errHeld):
			return nil, other, err
		case !errors.Is(err, errReplaced):
			return nil, holder{}, fmt.Errorf("taking the lock %s: %w", d.join(lockName), err)
		}
	}
}

// seize locks the open file f, which must still be the one at the name: one
// that was removed meanwhile locks nobody out.
func (d *directory) seize(f *os.File) error {
	err := flock(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	if err != nil {
		return err
	}
	same, err := d.stillNames(lockName, f)
	if err == nil && !same {
		return errReplaced
	}
	return err
}

func (l *lock) release() { l.file.Close() }

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return err
		}
	}
}

func openLock(d *directory) (*os.File, error) {
	for {
		f, err := d.openOwn(lockName, unix.O_RDWR)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		if err := d.makeLock(); err != nil {
			return nil, fmt.Errorf("making %s: %w", d.join(lockName), err)
		}
	}
}

// makeLock makes an empty lock file that appears with its mode, whatever the
// umask is.
func (d *directory) makeLock() error {
	tmp := temporary('l')
	f, err := d.createOwn(tmp)
	if err != nil {
		return err
	}
	f.Close()
	err = d.place(tmp, lockName)
	if err != nil {
		unix.Unlinkat(d.fd, tmp, 0)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // another starter was first
	}
	return err
}

// openOwn opens a regular file that only this account can change.
func (d *directory) openOwn(name string, flags int) (*os.File, error) {
	// Non-blocking, so that a named pipe in its place holds nobody up.
	fd, err := unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		if st, e := d.stat(name); e == nil && !isKind(&st, unix.S_IFREG) {
			return nil, &UnsafeError{Path: d.join(name), Why: "it is " + kindOf(&st) + ", not a regular file"}
		}
		return nil, &os.PathError{Op: "open", Path: d.join(name), Err: err}
	}
	f := os.NewFile(uintptr(fd), d.join(name))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "fstat", Path: d.join(name), Err: err}
	}
	why := ""
	switch {
	case !isKind(&st, unix.S_IFREG):
		why = "it is " + kindOf(&st) + ", not a regular file"
	case int(st.Uid) != d.uid:
		why = fmt.Sprintf("it belongs to uid %d, not to uid %d", st.Uid, d.uid)
	case st.Mode&0o022 != 0:
		why = fmt.Sprintf("others can write to it (mode %04o)", st.Mode&0o7777)
	}
	if why != "" {
		f.Close()
		return nil, &UnsafeError{Path: d.join(name), Why: why}
	}
	return f, nil
}

// createOwn makes a file 0600 whatever the umask is.
func (d *directory) createOwn(name string) (*os.File, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: d.join(name), Err: err}
	}
	f := os.NewFile(uintptr(fd), d.join(name))
	if err := f.Chmod(0o600); err != nil {
		f.Close()
		unix.Unlinkat(d.fd, name, 0)
		return nil, err
	}
	return f, nil
}

// stillNames reports whether name is the open file f.
func (d *directory) stillNames(name string, f *os.File) (bool, error) {
	var open unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &open); err != nil {
		return false, err
	}
	named, err := d.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && named.Dev == open.Dev && named.Ino == open.Ino, err
}
