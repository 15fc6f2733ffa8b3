//go:build linux

package endpoint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What is Yett's own lies at the broker's location and at the account's default one.
func TestOwnDirectories(t *testing.T) {
	got := Location{Home: "/t/data", Socket: "/t/run/broker.sock", Test: true}.Own()
	want := []string{"/t/data", "/t/run"}
	if home, err := homeOf(os.Getuid()); err == nil {
		want = append(want, filepath.Join(home, ".local/share/yett"), filepath.Join(home, ".local/state/yett"))
	}
	for _, dir := range want {
		if !slices.Contains(got, dir) {
			t.Errorf("%s is not among %q", dir, got)
		}
	}
	programs, err := Programs()
	if self, _ := os.Executable(); err != nil || programs != filepath.Dir(self) {
		t.Errorf("the programs lie in %q, %v", programs, err)
	}
}
