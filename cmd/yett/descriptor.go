//go:build unix

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// inherited returns a descriptor that whoever started this program left open
// for it. A descriptor of the program's own would be close-on-exec, and is not
// taken for one: its content is nobody's passphrase.
func inherited(fd int, write bool) (*os.File, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, usageError{fmt.Errorf("file descriptor %d is not open", fd)}
	}
	mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, usageError{fmt.Errorf("file descriptor %d cannot be used: %v", fd, err)}
	}
	if access := mode & unix.O_ACCMODE; write && access == unix.O_RDONLY || !write && access == unix.O_WRONLY {
		return nil, usageError{fmt.Errorf("file descriptor %d is open in the wrong direction", fd)}
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", fd)), nil
}
