package doctor

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
)

// ticksPerSecond is USER_HZ, which is 100 on every system that Yett runs on.
const ticksPerSecond = 100

// startOf is when a process started, by the wall clock of now.
func startOf(pid int) (time.Time, error) {
	stat, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return time.Time{}, err
	}
	// The name in parentheses may hold anything; field 22 counts from behind it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return time.Time{}, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, err
	}
	age := time.Duration(boot.Nano()) - time.Duration(ticks)*(time.Second/ticksPerSecond)
	return time.Now().Add(-age), nil
}

func procPath(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// serviceFinding tells by the broker's control group who started it: systemd
// puts a service into a group that is named after its unit.
func serviceFinding(pid int) Finding {
	text, err := os.ReadFile(procPath(pid, "cgroup"))
	if err != nil {
		return weaker("service", approval.Printable(err.Error()), UnknownService)
	}
	if unit := unitOf(string(text)); unit != "" {
		return good("service", "systemd runs the broker as "+approval.Printable(unit))
	}
	return weaker("service", "the broker was started by hand", ByHand)
}

// unitOf is the service in the text of a /proc/PID/cgroup. A whole login is a
// service too, user@UID.service, and no owner of what runs in it.
func unitOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] != "" && parts[1] != "name=systemd" {
			continue
		}
		if unit := path.Base(parts[2]); strings.HasSuffix(unit, ".service") && !strings.HasPrefix(unit, "user@") {
			return unit
		}
	}
	return ""
}

// closedFindings say how well the broker keeps its memory from others, and
// whether it may be reached from the network.
func closedFindings(pid int, console string) []Finding {
	return []Finding{dumpFinding(pid), lockedFinding(pid), networkFinding(pid, console)}
}

// dumpFinding: the files of a process that is not dumpable belong to root.
func dumpFinding(pid int) Finding {
	if unix.Getuid() == 0 {
		return weaker("memory", "root may read every process's memory, whatever the process does", AsRoot)
	}
	var st unix.Stat_t
	if err := unix.Stat(procPath(pid, "maps"), &st); err != nil {
		return weaker("memory", approval.Printable(err.Error()), SystemUnknown)
	}
	if st.Uid != 0 {
		return bad("memory", "other programs of this account may read the broker's memory: it is dumpable", Dumpable)
	}
	return good("memory", "the kernel keeps the broker's memory from other programs of this account")
}

func lockedFinding(pid int) Finding {
	limit, err := lineOf(procPath(pid, "limits"), "Max locked memory")
	if err != nil {
		return weaker("locked_memory", approval.Printable(err.Error()), SystemUnknown)
	}
	soft, _, _ := strings.Cut(limit, " ")
	locked, err := lineOf(procPath(pid, "status"), "VmLck:")
	if err != nil {
		return weaker("locked_memory", approval.Printable(err.Error()), SystemUnknown)
	}
	found := fmt.Sprintf("%s locked now, limit %s bytes", locked, soft)
	if n, err := strconv.ParseInt(soft, 10, 64); err == nil && n < lockedNeed {
		return weaker("locked_memory", found+": keys may be swapped to disk", MemoryNotLocked)
	}
	return good("locked_memory", found)
}

// lockedNeed is what the keys of an unlocked vault take, rounded up.
const lockedNeed = 64 << 10

// lineOf returns what follows a label in a file of /proc.
func lineOf(path, label string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, label); ok {
			return strings.Join(strings.Fields(rest), " "), nil
		}
	}
	return "", fmt.Errorf("%s has no line %q", path, label)
}
