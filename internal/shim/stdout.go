package shim

import (
	"os"

	"golang.org/x/sys/unix"
)

// takeStdout returns a private, close-on-exec descriptor of standard output
// and points descriptor 1 at standard error.
func takeStdout(stdout *os.File) (*os.File, error) {
	raw, err := stdout.SyscallConn()
	if err != nil {
		return nil, err
	}
	var private int
	var derr error
	err = raw.Control(func(fd uintptr) {
		if private, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); derr == nil {
			derr = pointAt(int(fd), os.Stderr)
		}
	})
	if err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, derr
	}
	return os.NewFile(uintptr(private), "protocol"), nil
}
