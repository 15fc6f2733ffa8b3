package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Datasync returns once the content of f would survive a power cut. It leaves
// the times of the file to the kernel.
func Datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
