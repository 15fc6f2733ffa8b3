package selftest

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ofSystem are the checks of what only Linux has.
func ofSystem() []trial {
	return []trial{
		{"clock: goes on while the machine sleeps", func(context.Context, *setting) (string, error) {
			var t unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
				return "", fmt.Errorf("CLOCK_BOOTTIME: %w", err)
			}
			return "CLOCK_BOOTTIME", nil
		}},
		{"memory: kept from debuggers and dumps", func(context.Context, *setting) (string, error) {
			before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
			if err != nil {
				return "", fmt.Errorf("PR_GET_DUMPABLE: %w", err)
			}
			defer unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0)
			if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
				return "", fmt.Errorf("PR_SET_DUMPABLE: %w", err)
			}
			return "PR_SET_DUMPABLE", nil
		}},
		{"memory: kept from swap", func(context.Context, *setting) (string, error) {
			page := make([]byte, unix.Getpagesize())
			if err := unix.Mlock(page); err != nil {
				return "", skipped("mlock: " + err.Error())
			}
			return "mlock", unix.Munlock(page)
		}},
		{"standard input: an open of its pipe is noticed", func(context.Context, *setting) (string, error) {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
			if err != nil {
				return "", fmt.Errorf("inotify: %w", err)
			}
			defer unix.Close(fd)
			var pipe [2]int
			if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
				return "", err
			}
			defer unix.Close(pipe[0])
			defer unix.Close(pipe[1])
			path := fmt.Sprintf("/proc/self/fd/%d", pipe[0])
			if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
				return "", fmt.Errorf("watching a pipe: %w", err)
			}
			second, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return "", fmt.Errorf("opening a pipe again: %w", err)
			}
			defer unix.Close(second)
			if n, err := unix.Read(fd, make([]byte, 256)); err != nil || n == 0 {
				return "", fmt.Errorf("nothing was told of it: %w", err)
			}
			return "inotify", nil
		}},
	}
}

// playLaunched refuses: there is no launchd.
func playLaunched() error { return errors.New("launchd is macOS's") }
