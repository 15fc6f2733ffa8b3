package vault

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hardenShared is what every system can do: no core files, and a try whether
// memory may be locked.
func hardenShared() []string {
	var failures []string
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		failures = append(failures, fmt.Sprintf("a crash may write memory to a core file (%v)", err))
	}
	m := newLockedMemory(1)
	defer m.free()
	if m.mapped == nil {
		failures = append(failures, "no memory could be set apart for keys")
	} else if err := unix.Mlock(m.mapped); err != nil {
		failures = append(failures, fmt.Sprintf("keys in memory may be swapped to disk (%v)", err))
	}
	return failures
}
