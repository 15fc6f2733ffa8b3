package peer

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// identity is what a pidfd says of its process. Ids are effective ones, as in
// SO_PEERCRED; ppid is 0 where this pid namespace does not see the parent.
type identity struct {
	pid, ppid, uid, gid int
}

// identify asks the pidfd itself, and where the kernel cannot (before 6.13)
// reads /proc. Both ways poll the pidfd last, so that an answer also means:
// the process lived until now. Tests set it to one way or the other.
var identify = func(fd int) (identity, error) {
	id, err := identifyByInfo(fd)
	if err != nil { // whatever the errno: it does not say whether the process lives
		return identifyByProc(fd)
	}
	return id, nil
}

// identifyByInfo uses PIDFD_GET_INFO.
func identifyByInfo(fd int) (identity, error) {
	const want = unix.PIDFD_INFO_PID | unix.PIDFD_INFO_CREDS
	info := unix.PidfdInfo{Mask: want}
	err := unix.IoctlPidfdInfo(fd, &info)
	if !alive(fd) {
		return identity{}, ErrGone
	}
	if err == unix.EREMOTE { // newer kernels say so; others answer with zeros
		return identity{}, noAttribution("it is in another pid namespace")
	}
	if err != nil {
		return identity{}, fmt.Errorf("asking the pidfd: %w", err)
	}
	if info.Mask&want != want || info.Tgid == 0 {
		return identity{}, noAttribution("it is in another pid namespace")
	}
	return identity{pid: int(info.Tgid), ppid: int(info.Ppid), uid: int(info.Euid), gid: int(info.Egid)}, nil
}

// identifyByProc uses the pidfd's fdinfo and /proc/PID/status.
func identifyByProc(fd int) (identity, error) {
	var st statusFacts
	pid, err := pidOfFdinfo(fd)
	if err == nil {
		st, err = statusOf(pid)
	}
	if !alive(fd) {
		return identity{}, ErrGone
	}
	if err != nil {
		return identity{}, noAttribution("reading about the process: %w", err)
	}
	return identity{pid: pid, ppid: st.ppid, uid: st.euid, gid: st.egid}, nil
}

func statusOf(pid int) (statusFacts, error) {
	dir, err := openProc(pid)
	if err != nil {
		return statusFacts{}, err
	}
	defer dir.close()
	return dir.status()
}

// pidOfFdinfo reads the "Pid:" line, which is -1 after a reap and 0 in a pid
// namespace that is not seen from here.
func pidOfFdinfo(fd int) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		value, ok := strings.CutPrefix(line, "Pid:")
		if !ok {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return 0, fmt.Errorf("fdinfo of the pidfd: %w", err)
		}
		if pid <= 0 {
			return 0, errors.New("it is in another pid namespace")
		}
		return pid, nil
	}
	return 0, errors.New("the descriptor is not a pidfd")
}

// alive polls a pidfd, which becomes readable when its process exits, reaped
// or not. Anything but a clear 'not readable' counts as dead.
func alive(fd int) bool { return !readable(fd) }

func readable(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds[:], 0)
		if err == unix.EINTR {
			continue
		}
		return err != nil || n != 0
	}
}

// pidfsInode returns the inode that names the process uniquely since boot, or
// 0 where pidfds are not in pidfs yet (before 6.9: all share one inode).
func pidfsInode(fd int) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("asking for the pidfd's file system: %w", err)
	}
	if fs.Type != unix.PID_FS_MAGIC {
		return 0, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("asking for the pidfd's inode: %w", err)
	}
	return st.Ino, nil
}
