package endpoint

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// directory is an open directory: what happens in it happens there, wherever
// its path leads by then.
type directory struct {
	fd   int
	path string
	uid  int // the account that owns what we make
}

func (d *directory) close() { unix.Close(d.fd) }

func (d *directory) join(name string) string { return filepath.Join(d.path, name) }

// openDirectory opens path from the root, one component at a time, following
// no link: what openat2's RESOLVE_NO_SYMLINKS does, but each directory is held
// and looked at on the way, and no sandbox refuses the call. Every component belongs to uid or root and can be changed by nobody
// else; a sticky directory of root's is fine, since others cannot replace our
// entries there. What is missing is made 0700 where create says so.
func openDirectory(path string, uid int, create bool) (*directory, error) {
	fd, err := openRoot()
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	d := &directory{fd: fd, path: "/", uid: uid}
	if err := d.checkParent(); err != nil {
		d.close()
		return nil, err
	}
	for _, name := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		next, err := d.enter(name, create)
		d.close()
		if err != nil {
			return nil, err
		}
		d = next
	}
	return d, nil
}

// openPrivate opens the directory that protects the socket.
func openPrivate(path string, uid int, create bool) (*directory, error) {
	d, err := openDirectory(path, uid, create)
	if err != nil {
		return nil, err
	}
	if err := d.checkPrivate(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *directory) enter(name string, create bool) (*directory, error) {
	fd, err := openChild(d.fd, name)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := d.makeDirectory(name); err != nil {
			return nil, fmt.Errorf("making %s: %w", d.join(name), err)
		}
		fd, err = openChild(d.fd, name)
	}
	if err != nil {
		if st, e := d.stat(name); e == nil && !isKind(&st, unix.S_IFDIR) {
			return nil, &UnsafeError{Path: d.join(name), Why: "it is " + kindOf(&st) + ", not a directory"}
		}
		return nil, &os.PathError{Op: "open", Path: d.join(name), Err: err}
	}
	next := &directory{fd: fd, path: d.join(name), uid: d.uid}
	if err := next.checkParent(); err != nil {
		next.close()
		return nil, err
	}
	return next, nil
}

// makeDirectory makes name 0700 whatever the umask is. It appears with its
// mode, so that a second starter never meets it half made.
func (d *directory) makeDirectory(name string) error {
	tmp := temporary('d')
	if err := unix.Mkdirat(d.fd, tmp, 0o700); err != nil {
		return err
	}
	err := unix.Fchmodat(d.fd, tmp, 0o700, 0)
	if err == nil {
		err = renameNew(d.fd, tmp, name)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		// A file system without an exclusive rename: over an empty directory
		// of another starter the plain one does no harm.
		err = unix.Renameat(d.fd, tmp, d.fd, name)
	}
	if err != nil {
		unix.Unlinkat(d.fd, tmp, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil // another starter was first; enter checks what it made
	}
	return err
}

func (d *directory) checkParent() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return &os.PathError{Op: "fstat", Path: d.path, Err: err}
	}
	if owner := int(st.Uid); owner != 0 && owner != d.uid {
		return &UnsafeError{Path: d.path, Why: fmt.Sprintf("it belongs to uid %d, not to uid %d or root", owner, d.uid)}
	}
	sticky := st.Mode&unix.S_ISVTX != 0 && st.Uid == 0
	if st.Mode&0o022 != 0 && !sticky {
		return &UnsafeError{Path: d.path, Why: fmt.Sprintf("others can write to it (mode %04o)", st.Mode&0o7777)}
	}
	return nil
}

func (d *directory) checkPrivate() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return &os.PathError{Op: "fstat", Path: d.path, Err: err}
	}
	if owner := int(st.Uid); owner != d.uid {
		return &UnsafeError{Path: d.path, Why: fmt.Sprintf("it belongs to uid %d, not to uid %d", owner, d.uid)}
	}
	if st.Mode&0o777 != 0o700 {
		return &UnsafeError{Path: d.path, Why: fmt.Sprintf("its mode is %04o, not 0700", st.Mode&0o7777)}
	}
	return nil
}

func (d *directory) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, &os.PathError{Op: "stat", Path: d.join(name), Err: err}
	}
	return st, nil
}

// place gives tmp its name, and never takes the name from something else.
func (d *directory) place(tmp, name string) error {
	err := renameNew(d.fd, tmp, name)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		err = d.placeByLink(tmp, name)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: d.join(tmp), New: d.join(name), Err: err}
	}
	return nil
}

// placeByLink serves file systems without an exclusive rename.
func (d *directory) placeByLink(tmp, name string) error {
	if err := unix.Linkat(d.fd, tmp, d.fd, name, 0); err != nil {
		return err
	}
	return unix.Unlinkat(d.fd, tmp, 0)
}

// remove removes name while it is the object with this identity.
func (d *directory) remove(name string, id identity) error {
	st, err := d.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if identityOf(&st) != id {
		return &UnsafeError{Path: d.join(name), Why: "another object has taken its place"}
	}
	return d.removeAside(name, id)
}

// removeAside moves the object aside and looks at it again before it goes, so
// that one that took its place after the first look is put back.
func (d *directory) removeAside(name string, id identity) error {
	aside := temporary('b')
	if err := unix.Renameat(d.fd, name, d.fd, aside); err != nil {
		return &os.PathError{Op: "rename", Path: d.join(name), Err: err}
	}
	st, err := d.stat(aside)
	if err != nil {
		return err
	}
	if identityOf(&st) != id {
		if err := d.place(aside, name); err != nil {
			return fmt.Errorf("putting back what took the place of the socket: %w", err)
		}
		return &UnsafeError{Path: d.join(name), Why: "another object has taken its place"}
	}
	if err := unix.Unlinkat(d.fd, aside, 0); err != nil {
		return &os.PathError{Op: "unlink", Path: d.join(aside), Err: err}
	}
	return nil
}

// names lists the directory.
func (d *directory) names() ([]string, error) {
	fd, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	return f.Readdirnames(-1)
}

// temporary is a name as long as the socket's own, so that where the socket's
// path fits, this one does.
func temporary(kind byte) string {
	return "." + string(kind) + strings.ToLower(rand.Text()[:len(socketName)-2])
}

func isTemporary(name string, kind byte) bool {
	return len(name) == len(socketName) && name[0] == '.' && name[1] == kind &&
		strings.Trim(name[2:], "abcdefghijklmnopqrstuvwxyz234567") == ""
}
