package endpoint

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// lifetime is when a live process started, in clock ticks of this boot.
func lifetime(pid int) (ticks uint64, boot string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The program's name may hold spaces and parentheses; the last one closes
	// it. State is field 3, the start field 22.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	fields := strings.Fields(string(rest))
	if len(fields) < 20 {
		return 0, "", fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, "", fmt.Errorf("process %d has ended", pid)
	}
	if ticks, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return 0, "", fmt.Errorf("reading /proc/%d/stat: %w", pid, err)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, "", err
	}
	return ticks, strings.TrimSpace(string(id)), nil
}

// managerName is what systemd calls itself, as the system's and as an
// account's manager.
const managerName = "systemd"

// programName is the name that a process goes by; it may choose it.
func programName(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// stopped reports whether a signal has stopped the process.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " T")
}
