package endpoint

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstPassed is the number of the first descriptor that is passed,
// sd_listen_fds(3).
const firstPassed = 3

// Inherited returns the listening socket that a service manager passed, or nil
// where none did. The variables that say so are unset: they are this process's
// alone. They choose no path, see ListenOn.
func Inherited() (*os.File, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil // nothing, or meant for another process
	}
	if count != "1" || names != InheritedName {
		return nil, &InheritedError{Why: fmt.Sprintf("%q descriptors came with the names %q; it must be one named %s", count, names, InheritedName)}
	}
	unix.CloseOnExec(firstPassed)
	if _, err := unix.GetsockoptInt(firstPassed, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return nil, &InheritedError{Why: "descriptor 3 is no socket"} // whose it is, is not known: it stays open
	}
	return os.NewFile(firstPassed, InheritedName), nil
}

// judgePassed says what is wrong with a passed descriptor.
func judgePassed(f *os.File, path string, uid int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	why := ""
	err = raw.Control(func(fd uintptr) { why = wrongWith(int(fd), path, uid) })
	if err == nil && why != "" {
		return &InheritedError{Why: why}
	}
	return err
}

func wrongWith(fd int, path string, uid int) string {
	option := func(name int) int {
		v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, name)
		if err != nil {
			return -1
		}
		return v
	}
	switch {
	case option(unix.SO_DOMAIN) != unix.AF_UNIX:
		return "it is no unix socket"
	case option(unix.SO_TYPE) != unix.SOCK_STREAM:
		return "it is no stream socket"
	case option(unix.SO_ACCEPTCONN) != 1:
		return "it does not listen"
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Sprintf("its address cannot be read: %v", err)
	}
	if at, ok := bound.(*unix.SockaddrUnix); !ok || at.Name != path {
		name := "nowhere"
		if ok && at.Name != "" {
			name = fmt.Sprintf("at %q", at.Name)
		}
		return fmt.Sprintf("it is bound %s, not at %s", name, path)
	}
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return fmt.Sprintf("who made it cannot be read: %v", err)
	case int(who.Uid) != uid && who.Uid != 0:
		return fmt.Sprintf("it was made by uid %d, not by uid %d or root", who.Uid, uid)
	}
	return ""
}
