package endpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestAboveTheHome: a home under a directory that others can write to is
// refused before anything is made there, as it is later.
func TestAboveTheHome(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, safe := range map[os.FileMode]bool{0o700: true, 0o755: true, 0o770: false, 0o707: false, 0o777: false} {
		if err := os.Chmod(open, mode); err != nil {
			t.Fatal(err)
		}
		for _, home := range []string{filepath.Join(open, "home"), filepath.Join(open, "missing", "home")} {
			loc, err := InHome(home)
			if err != nil {
				t.Fatal(err)
			}
			err = CheckAbove(loc)
			var unsafe *UnsafeError
			if safe != (err == nil) || !safe && !errors.As(err, &unsafe) {
				t.Errorf("mode %o: %s: %v", mode, home, err)
			}
		}
	}
}
