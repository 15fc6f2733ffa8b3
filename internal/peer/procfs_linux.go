package peer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
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

func procPath(pid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + name
}

func readStat(pid int) (statFacts, error) {
	text, err := readCapped(procPath(pid, "stat"), 4096)
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

func readStatus(pid int) (statusFacts, error) {
	text, err := readCapped(procPath(pid, "status"), 16<<10)
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

// readCgroup returns the path in the unified hierarchy, else the one that
// systemd keeps.
func readCgroup(pid int) string {
	text, err := readCapped(procPath(pid, "cgroup"), 64<<10)
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

// readCapped reads at most limit bytes; files of /proc have no size to ask for.
func readCapped(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
