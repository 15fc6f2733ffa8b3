package vault

import "golang.org/x/sys/unix"

// lockedMemory is memory outside the Go heap that is not swapped out and, where
// the system knows how to, not dumped. Locking is an attempt: Harden says when
// the system does not allow it.
type lockedMemory struct {
	bytes  []byte
	mapped []byte // nil if bytes lie in the heap after all
}

func newLockedMemory(n int) *lockedMemory {
	mapped, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return &lockedMemory{bytes: make([]byte, n)}
	}
	_ = unix.Mlock(mapped)
	keepFromDumps(mapped)
	return &lockedMemory{bytes: mapped, mapped: mapped}
}

func (m *lockedMemory) free() {
	clear(m.bytes)
	if m.mapped != nil {
		_ = unix.Munmap(m.mapped)
	}
	m.bytes, m.mapped = nil, nil
}
