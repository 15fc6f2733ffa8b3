package shim

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// awaitDeath returns nil when the process parent, which started this one, is
// dead. It judges nothing: whoever it is, its end is ours, and whether it can
// stand for an agent is the broker's to say.
func awaitDeath(parent int) error {
	fd, err := unix.PidfdOpen(parent, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("taking hold of it: %w", err)
	}
	f := os.NewFile(uintptr(fd), "parent")
	defer f.Close()
	if os.Getppid() != parent { // the number may be another's by now
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("watching it: %w", err)
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	})
}
