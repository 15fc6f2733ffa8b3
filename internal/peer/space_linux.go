package peer

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// space is the auxiliary vector of a process, getauxval(3): what the kernel
// wrote for the program when exec made its address space. It holds addresses
// that are random for each exec, so it tells an exec of the same file from no
// exec at all. A program can rewrite its own with prctl(PR_SET_MM_MAP), if it
// still has the old one, or have the randomness turned off by personality(2):
// this catches what runs another program, not a program that hides its own
// exec. It is nil where the kernel does not show it.
//
// The file must be opened each time: an open one goes on showing the address
// space that it was opened for.
type space []byte

// maxSpace is above what any kernel writes: some 25 pairs of words.
const maxSpace = 1024

// space reads the vector into buf. The file of an address space that is gone
// reads as empty.
func (d procDir) space(buf []byte) space {
	fd, err := unix.Openat(int(d), "auxv", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil || n <= 0 {
		return nil
	}
	return buf[:n]
}

// changed reports whether now is another address space than s. What was never
// shown cannot be compared; what is shown no longer has changed.
func (s space) changed(d procDir) bool {
	if s == nil {
		return false
	}
	// Not on the stack, which would have to grow. One byte more tells what is longer.
	buf := make([]byte, len(s)+1)
	return !bytes.Equal(s, d.space(buf))
}
