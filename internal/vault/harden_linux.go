package vault

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Harden keeps this process's memory from others of the same account and from
// disk. It returns what could not be done, in words for the person.
func Harden() []string {
	failures := hardenShared()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		failures = append(failures, fmt.Sprintf("programs of the same account may read this process's memory (%v)", err))
	}
	return failures
}

// keepFromDumps also keeps the pages out of forked children's copies.
func keepFromDumps(b []byte) {
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	_ = unix.Madvise(b, unix.MADV_WIPEONFORK)
}
