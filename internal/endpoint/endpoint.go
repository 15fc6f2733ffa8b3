// Package endpoint is where the broker's socket is: it finds the path, proves
// it, makes the socket, owns it and removes it, and it dials and proves the
// broker at the other end.
//
// It trusts the kernel's answer to who we are, the account database, and
// directories that only this account and root can change. It trusts no
// environment variable and nothing that merely lies at a path. Every directory
// from the root down is opened by descriptor without following a link; the
// directory that holds the socket is the account's own and 0700, and that mode,
// not the socket's, is the protection. A leftover is removed only while the
// lock is held and only after it was proven to be an ended instance's socket.
//
// Beside the socket, in the private directory:
//
//	broker.lock   flock held for the life of the broker, never removed;
//	              one JSON line, the holder that took it last
//	broker.state  one JSON line: the holder and the node that it made
//	.bXXXXXXXXX   a node under a temporary name; .s… a state file, .l… a lock
//
// The same lock is taken as broker.lock in the data directory, so that two
// brokers whose socket paths differ (a runtime directory that came or went
// between two logins) do not share one vault.
//
// A holder is {"version":1,"pid","start_ticks","boot_id","executable",
// "socket"}; a state adds {"device","inode","made_ns"}. Both are read as
// claims of this account: they name a process in a message and can only add a
// refusal, never permit what the kernel did not confirm.
package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	socketName = "broker.sock"
	lockName   = "broker.lock"
	stateName  = "broker.state"
)

// Location is where one broker lives.
type Location struct {
	Home   string // data directory: vault, ledger
	Socket string // in a private directory of its own
	Test   bool   // chosen by --home: shown on every card
}

// maxPath is the longest path that a socket address holds with its final NUL.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Check reports whether the location can be used at all. It touches no file.
func (l Location) Check() error {
	for _, p := range []string{l.Home, l.Socket} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("endpoint path %q is not an absolute clean path", p)
		}
	}
	if name := filepath.Base(l.Socket); name != socketName {
		return fmt.Errorf("endpoint path %q does not end in %s", l.Socket, socketName)
	}
	if n := len(l.Socket); n > maxPath {
		return &PathTooLongError{Path: l.Socket, Length: n, Limit: maxPath}
	}
	return nil
}

// Default is the location that an account's programs agree on without being
// told: it depends on the uid, the account database and /run/user alone.
func Default() (Location, error) {
	uid, err := account()
	if err != nil {
		return Location{}, err
	}
	home, err := homeOf(uid)
	if err != nil {
		return Location{}, fmt.Errorf("finding the home directory of uid %d: %w", uid, err)
	}
	if home, err = resolve(home, uid); err != nil {
		return Location{}, fmt.Errorf("resolving the home directory of uid %d: %w", uid, err)
	}
	run := filepath.Join("/run/user", strconv.Itoa(uid))
	if ownRuntimeDirectory(run, uid) {
		run = filepath.Join(run, "yett")
	} else {
		run = filepath.Join(home, ".local/state/yett/run")
	}
	return Location{
		Home:   filepath.Join(home, ".local/share/yett"),
		Socket: filepath.Join(run, socketName),
	}, nil
}

// InHome is the location where everything lies in dir. Links above dir are
// resolved here, once; dir itself must not be one.
func InHome(dir string) (Location, error) {
	uid, err := account()
	if err != nil {
		return Location{}, err
	}
	if dir == "" {
		return Location{}, errors.New("the home directory is named by an empty string")
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return Location{}, fmt.Errorf("finding the home directory: %w", err)
	}
	parent, err := resolve(filepath.Dir(dir), uid)
	if err != nil {
		return Location{}, fmt.Errorf("resolving %s: %w", filepath.Dir(dir), err)
	}
	home := filepath.Join(parent, filepath.Base(dir))
	return Location{Home: home, Socket: filepath.Join(home, "run", socketName), Test: true}, nil
}

// account is the uid that owns what we make. A process that runs for one
// account with the rights of another has no endpoint.
func account() (int, error) {
	uid, euid := os.Getuid(), os.Geteuid()
	if uid != euid {
		return 0, fmt.Errorf("real uid %d and effective uid %d differ", uid, euid)
	}
	return uid, nil
}

// ownRuntimeDirectory reports whether dir is a runtime directory that only
// this account can enter.
func ownRuntimeDirectory(dir string, uid int) bool {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil {
		return false
	}
	return isKind(&st, unix.S_IFDIR) && int(st.Uid) == uid && st.Mode&0o777 == 0o700
}

// resolve follows the links in an absolute path whose end may be missing. Only
// links of this account or root are followed; what they lead to is checked
// where the path is used.
func resolve(path string, uid int) (string, error) {
	todo := strings.Split(path, "/")
	done := "/"
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, name)
		var st unix.Stat_t
		err := unix.Lstat(next, &st)
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(append([]string{next}, todo...)...), nil
		}
		if err != nil {
			return "", &os.PathError{Op: "lstat", Path: next, Err: err}
		}
		if !isKind(&st, unix.S_IFLNK) {
			done = next
			continue
		}
		if owner := int(st.Uid); owner != 0 && owner != uid {
			return "", &UnsafeError{Path: next, Why: fmt.Sprintf("it is a symbolic link of uid %d", owner)}
		}
		if links++; links > 40 {
			return "", &UnsafeError{Path: next, Why: "too many symbolic links"}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}
