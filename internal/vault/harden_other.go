//go:build !linux

package vault

// Harden keeps this process's memory from disk. It returns what could not be
// done, in words for the person.
func Harden() []string {
	return append(hardenShared(), "debuggers of the same account are not kept out on this system")
}

func keepFromDumps([]byte) {}
