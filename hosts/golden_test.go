//go:build hosts && linux

package hosts

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The golden files are part of the test program: its account need not be able
// to read the source tree.
//
//go:embed testdata
var goldens embed.FS

const (
	envUpdate  = "UPDATE"             // set by the person: write golden files
	envGoldens = "YETT_HOSTS_GOLDENS" // where the account's tests put them
)

// goldenUpdate makes a place for new golden files if they are wanted. What it
// returns takes them into the source tree.
func goldenUpdate() (keep func() error, err error) {
	if os.Getenv(envUpdate) == "" || os.Getenv(envGoldens) != "" {
		return func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "yett-goldens-")
	if err != nil {
		return nil, fmt.Errorf("making a place for golden files: %w", err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		return nil, fmt.Errorf("making a place for golden files: %w", err)
	}
	os.Setenv(envGoldens, dir)
	return func() error {
		defer os.RemoveAll(dir)
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			return err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return fmt.Errorf("keeping a golden file: %w", err)
			}
			if err := os.WriteFile(filepath.Join("testdata", filepath.Base(f)), text, 0o644); err != nil {
				return fmt.Errorf("keeping a golden file: %w", err)
			}
		}
		return nil
	}, nil
}

// golden compares a text with a golden file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if dir := os.Getenv(envGoldens); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := goldens.ReadFile("testdata/" + name)
	if err != nil {
		t.Errorf("%v; it would be\n%s", err, got)
		return
	}
	if string(want) != got {
		t.Errorf("%s has changed (make hosts UPDATE=1 writes it):\n%s", name, difference(t, string(want), got))
	}
}

// difference is what diff says, or both texts where there is none.
func difference(t *testing.T, want, got string) string {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "want"), filepath.Join(dir, "got")
	if os.WriteFile(a, []byte(want), 0o600) != nil || os.WriteFile(b, []byte(got), 0o600) != nil {
		return got
	}
	out, _ := exec.Command("diff", "-u", a, b).Output() // exits 1 for different files
	if len(out) == 0 {
		return got
	}
	return string(out)
}
