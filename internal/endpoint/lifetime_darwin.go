package endpoint

import (
	"time"

	"golang.org/x/sys/unix"
)

// lifetime is when a live process started: microseconds, and the time of boot.
func lifetime(pid int) (ticks uint64, boot string, err error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, "", err
	}
	b, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return 0, "", err
	}
	start := p.Proc.P_starttime
	return uint64(start.Sec)*1e6 + uint64(start.Usec), time.Unix(b.Unix()).UTC().Format(time.RFC3339Nano), nil
}

// managerName is no process's name: sockets of launchd are not taken over yet.
const managerName = "\x00"

func programName(int) string { return "" }

// stopped is not told here: a stopped broker shows by not answering.
func stopped(int) bool { return false }
