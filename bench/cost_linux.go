package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// processorTime is what the threads of a process that live have used.
func processorTime(pid int) (used time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		var thread time.Duration
		if n, _ := fmt.Sscan(string(text), &thread); n == 1 {
			used += thread
		}
	}
	return used
}
