package peer

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Floor reports nil if this system gives the evidence that Yett needs. It asks
// the kernel for the peer of a real socket pair, since distributions carry
// features back and sandboxes take them away.
func Floor() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: making a unix socket pair: %w", ErrUnsupported, err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])

	fd, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return fmt.Errorf("%w: Linux %s gives no SO_PEERPIDFD (%w); Yett needs kernel 6.5 or later", ErrUnsupported, kernelRelease(), err)
	}
	defer unix.Close(fd)
	id, err := identify(fd)
	if err != nil {
		return fmt.Errorf("%w: Linux %s: asking about this process: %w", ErrUnsupported, kernelRelease(), err)
	}
	// A /proc of another pid namespace would answer about other processes.
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) || id.pid != os.Getpid() {
		return fmt.Errorf("%w: /proc is missing or belongs to another pid namespace", ErrUnsupported)
	}
	return nil
}

func kernelRelease() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "of unknown version"
	}
	return unix.ByteSliceToString(uts.Release[:])
}
