package vault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how long a save waits for another process's save.
const lockWait = 5 * time.Second

// lockDir excludes other writers of the vault in dir until unlock is called.
// The kernel drops the lock when its holder dies, so a stale one cannot exist.
func lockDir(dir string, wait time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("taking the write lock: %w", err)
	}
	if err := f.Chmod(0o600); err != nil { // the umask may have taken bits away
		f.Close()
		return nil, fmt.Errorf("taking the write lock: %w", err)
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("taking the write lock: %w", err)
		}
		if time.Now().After(deadline) {
			f.Close()
			return nil, ErrBusy
		}
	}
}
