package peer

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// image is the file that a process was started from. Identity is device and
// inode; the path is for people.
type image struct {
	state    string
	path     string
	dev, ino uint64
	size     int64
	owner    int
	mode     uint32
}

// same compares identities; a hidden image has none, so two hidden ones are
// alike and differ from every other.
func (i image) same(other image) bool { return i.dev == other.dev && i.ino == other.ino }

// image looks through /proc/PID/exe. The caller polls the pidfd around it. It
// asks no file system that could make it wait: a program may lie on a FUSE
// mount whose server is the very process that is asked about.
func (d procDir) image() (image, error) {
	path, err := d.readlink("exe")
	if errors.Is(err, fs.ErrPermission) {
		return image{state: exeHidden}, nil
	}
	if err != nil {
		return image{}, fmt.Errorf("reading the link to its program: %w", err)
	}
	i, st, err := d.file()
	if err != nil || i.state == exeHidden {
		return i, err
	}
	i.path, i.size, i.owner, i.mode = path, int64(st.Size), int(st.Uid), uint32(st.Mode)&0o7777
	name, deleted := strings.CutSuffix(path, " (deleted)")
	switch {
	case st.Nlink == 0 && i.dev == memfdDevice():
		i.state, i.path = exeMemory, name
	case st.Nlink == 0 || deleted:
		i.state, i.path = exeReplaced, name
	}
	return i, nil
}

// file is the identity of the program alone: one system call.
func (d procDir) file() (image, unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(int(d), "exe", unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st)
	if errors.Is(err, fs.ErrPermission) {
		return image{state: exeHidden}, st, nil
	}
	if err != nil {
		return image{}, st, fmt.Errorf("asking for its program: %w", err)
	}
	return image{state: exeFile, dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino}, st, nil
}

// memfdDevice is the file system of memfds, which is mounted nowhere: a name
// that looks like one can be given to any file. It is 0 if it cannot be had.
var memfdDevice = sync.OnceValue(func() uint64 {
	fd, err := unix.MemfdCreate("yett", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	return st.Dev
})

const resolveCached = 0x20 // RESOLVE_CACHED of openat2(2), kernel 5.12

// elsewhere reports whether another file, or none, lies at the path of i now.
// It looks into the kernel's cache only (where the name of a running program
// is, as long as it is its name) and says no when that cannot tell.
func (i image) elsewhere() bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolveCached}
	fd, err := unix.Openat2(unix.AT_FDCWD, i.path, &how)
	if err != nil {
		return err == unix.ENOENT || err == unix.ENOTDIR
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st)
	if err != nil {
		return false
	}
	return st.Ino != i.ino || unix.Mkdev(st.Dev_major, st.Dev_minor) != i.dev
}
