//go:build unix

package bodies

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	reserve    = 64 << 20 // bytes of the file system, or a twentieth of a small one, that bodies leave to the ledger
	checkEvery = 64       // chunks between two looks
)

// roomFor reports ErrNoRoom where the file system is so full that the ledger
// needs what is left.
func (s *Store) roomFor(f *os.File, chunk int64) error {
	if chunk%checkEvery != 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return nil // a file system that cannot say is written until it refuses
	}
	block := uint64(st.Bsize)
	if st.Bavail*block < min(reserve, st.Blocks*block/20) {
		return ErrNoRoom
	}
	return nil
}
