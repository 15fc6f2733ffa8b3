package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of what its tests leave behind: a
// test whose control is gone may end without ending what it started.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it they merely live on
}

// endOrphans ends every child that is left; it runs when none is wanted.
func endOrphans() {
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
		if err != nil {
			return
		}
		left := strings.Fields(string(text))
		if len(left) == 0 {
			return
		}
		for _, field := range left {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}
