package peer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// statFacts are from /proc/PID/stat.
type statFacts struct {
	comm       string
	session    int
	tty        int
	startTicks uint64
}

// statusFacts are from /proc/PID/status, which stays readable when the
// program is hidden.
type statusFacts struct {
	ppid, euid, egid, tracer int
	nspid                    []int // from our namespace down to its own
}

// procDir is an open /proc/PID. It belongs to the process, not to its number:
// after a reap every look into it fails, whoever has the number by then. That
// it is the right one is known once the pidfd has been polled after openProc.
type procDir int

func openProc(pid int) (procDir, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening its directory in /proc: %w", err)
	}
	return procDir(fd), nil
}

func (d procDir) close() { unix.Close(int(d)) }

// read reads at most limit bytes; files of /proc have no size to ask for.
func (d procDir) read(name string, limit int) ([]byte, error) {
	fd, err := unix.Openat(int(d), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	defer unix.Close(fd)
	text := make([]byte, 0, min(limit, 4096))
	for len(text) < limit {
		if len(text) == cap(text) {
			text = slices.Grow(text, len(text))
		}
		n, err := unix.Read(fd, text[len(text):min(limit, cap(text))])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		case n == 0:
			return text, nil
		}
		text = text[:len(text)+n]
	}
	return text, nil
}

func (d procDir) readlink(name string) (string, error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(int(d), name, buf)
		if err != nil {
			return "", err
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
}

// owner returns the effective ids of the process: the kernel promises that
// /proc/PID belongs to them, whatever the process hides. It says less than
// PIDFD_GET_INFO, but at once and on every kernel.
func (d procDir) owner() (uid, gid int, err error) {
	var st unix.Statx_t
	err = unix.Statx(int(d), "", unix.AT_EMPTY_PATH, unix.STATX_UID|unix.STATX_GID, &st)
	if err != nil {
		return 0, 0, fmt.Errorf("asking for its account: %w", err)
	}
	return int(st.Uid), int(st.Gid), nil
}

func (d procDir) stat() (statFacts, error) {
	text, err := d.read("stat", 4096)
	if err != nil {
		return statFacts{}, err
	}
	return parseStat(string(text))
}

// parseStat splits at the last parenthesis: the name before it is the
// process's own choice and may hold anything.
func parseStat(text string) (statFacts, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return statFacts{}, errors.New("stat: no name")
	}
	fields := strings.Fields(text[end+1:]) // fields[0] is field 3
	if len(fields) < 20 {
		return statFacts{}, errors.New("stat: too few fields")
	}
	session, err := strconv.Atoi(fields[6-3])
	if err != nil {
		return statFacts{}, fmt.Errorf("stat: session: %w", err)
	}
	tty, err := strconv.Atoi(fields[7-3])
	if err != nil {
		return statFacts{}, fmt.Errorf("stat: terminal: %w", err)
	}
	start, err := strconv.ParseUint(fields[22-3], 10, 64)
	if err != nil {
		return statFacts{}, fmt.Errorf("stat: start time: %w", err)
	}
	return statFacts{comm: text[open+1 : end], session: session, tty: tty, startTicks: start}, nil
}

func (d procDir) status() (statusFacts, error) {
	text, err := d.read("status", 16<<10)
	if err != nil {
		return statusFacts{}, err
	}
	return parseStatus(string(text))
}

// parseStatus wants every line that it uses. The kernel escapes newlines in
// the name, so a name cannot forge a line.
func parseStatus(text string) (statusFacts, error) {
	var st statusFacts
	seen := make(map[string]bool, 5)
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		var err error
		switch key {
		case "PPid":
			st.ppid, err = numberAt(value, 0)
		case "TracerPid":
			st.tracer, err = numberAt(value, 0)
		case "Uid": // real, effective, saved, file system
			st.euid, err = numberAt(value, 1)
		case "Gid":
			st.egid, err = numberAt(value, 1)
		case "NSpid":
			st.nspid, err = numbers(value)
		default:
			continue
		}
		if err != nil {
			return statusFacts{}, fmt.Errorf("status: %s: %w", key, err)
		}
		if seen[key] {
			return statusFacts{}, fmt.Errorf("status: %s twice", key)
		}
		seen[key] = true
	}
	if len(seen) != 5 {
		return statusFacts{}, errors.New("status: not the lines that were expected")
	}
	return st, nil
}

func numberAt(value string, i int) (int, error) {
	all, err := numbers(value)
	if err != nil {
		return 0, err
	}
	if i >= len(all) {
		return 0, errors.New("too few numbers")
	}
	return all[i], nil
}

func numbers(value string) ([]int, error) {
	var all []int
	for _, field := range strings.Fields(value) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	if all == nil {
		return nil, errors.New("no number")
	}
	return all, nil
}

// cgroup returns the path in the unified hierarchy, else the one that systemd
// keeps.
func (d procDir) cgroup() string {
	text, err := d.read("cgroup", 64<<10)
	if err != nil {
		return ""
	}
	named := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return path
		}
		if _, path, ok := strings.Cut(line, ":name=systemd:"); ok {
			named = path
		}
	}
	return named
}

// ttyName gives the device number of a controlling terminal its usual name.
func ttyName(nr int) string {
	if nr == 0 {
		return ""
	}
	major := nr >> 8 & 0xfff
	minor := nr&0xff | nr>>12&0xfff00
	switch {
	case major >= 136 && major <= 143:
		return "/dev/pts/" + strconv.Itoa((major-136)*256+minor)
	case major == 4 && minor < 64:
		return "/dev/tty" + strconv.Itoa(minor)
	case major == 4:
		return "/dev/ttyS" + strconv.Itoa(minor-64)
	}
	return fmt.Sprintf("%d:%d", major, minor)
}
