package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// makeDir makes dir and what is missing above it, 0700 whatever the umask. An
// empty directory of the account is closed to others; one with something in it
// that is open to others may be somebody's home, and is refused.
func makeDir(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if parent := filepath.Dir(dir); parent != dir {
			if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
				if err := makeDir(parent); err != nil {
					return err
				}
			}
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err = os.Lstat(dir)
	}
	if err != nil {
		return err
	}
	if err := ownDir(dir, info); err != nil {
		return err
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if info.Mode().Perm()&0o077 != 0 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if len(entries) != 0 {
			return checkMode(dir, info)
		}
	}
	return os.Chmod(dir, 0o700)
}

// checkDir refuses a directory that others could put files into or look into.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := ownDir(dir, info); err != nil {
		return err
	}
	return checkMode(dir, info)
}

func ownDir(dir string, info fs.FileInfo) error {
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another account", dir)
	}
	return nil
}

func checkMode(dir string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is open to others (mode %#o)", dir, info.Mode().Perm())
	}
	return nil
}
