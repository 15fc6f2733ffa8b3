package demo

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Process names a process for as long as the machine runs: numbers come back,
// start times do not.
type Process struct {
	PID   int
	Start string // clock ticks since boot, as in /proc/PID/stat
}

// Running reports whether the process still runs; one that has ended and waits
// to be reaped does not.
func (p Process) Running() bool {
	now, _, state, err := readStat(p.PID)
	return err == nil && now == p && state != "Z" && state != "X"
}

// Descendants returns the processes below pid at this moment: those that it
// started, those that they started, and so on.
func Descendants(pid int) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]Process{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, parent, state, err := readStat(n); err == nil && state != "Z" {
			children[parent] = append(children[parent], p)
		}
	}
	var all []Process
	for next := children[pid]; len(next) > 0; {
		all = append(all, next...)
		var below []Process
		for _, p := range next {
			below = append(below, children[p.PID]...)
		}
		next = below
	}
	return all
}

// readStat reads /proc/PID/stat. The command name in it may hold anything, so
// the fields are counted from its last parenthesis.
func readStat(pid int) (p Process, parent int, state string, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, 0, "", err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return p, 0, "", fmt.Errorf("reading /proc/%d/stat: too few fields", pid)
	}
	parent, err = strconv.Atoi(fields[1])
	return Process{pid, fields[19]}, parent, fields[0], err
}
