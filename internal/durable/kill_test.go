package durable

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The test binary runs itself as the process that is killed.
const killPath, killStep = "YETT_TEST_DURABLE_PATH", "YETT_TEST_DURABLE_KILL"

func TestMain(m *testing.M) {
	if path := os.Getenv(killPath); path != "" {
		d := &faultyDisk{kill: os.Getenv(killStep)}
		_ = writeFile(d, path, []byte("new"), true)
		os.Exit(0) // it was to be killed: the parent sees that it was not
	}
	os.Exit(m.Run())
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal comes before anything else happens
}

func TestV01_KilledAtEveryStep(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	points := []string{"within write"}
	for _, s := range steps {
		points = append(points, "before "+s, "after "+s)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := errors.Join(WriteFile(path, []byte("older"), true), WriteFile(path, []byte("old"), true)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), killPath+"="+path, killStep+"="+point)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the helper was not killed: %v\n%s", err, out)
			}

			want := "old"
			if point == "after rename" || strings.HasSuffix(point, "syncdir") {
				want = "new"
			}
			wantFile(t, path, want)
			if b, err := os.ReadFile(path + Previous); err != nil || string(b) != "old" && string(b) != "older" {
				t.Errorf("the previous generation: %q, %v", b, err)
			}
			wantPrivateLeftovers(t, path)

			// The next writer cleans up and goes on.
			if err := errors.Join(RemoveLeftovers(path), WriteFile(path, []byte("newer"), true)); err != nil {
				t.Fatal(err)
			}
			wantFile(t, path, "newer")
			wantFile(t, path+Previous, want)
			wantNames(t, path, "f", "f.prev")
		})
	}
}

func wantPrivateLeftovers(t *testing.T, path string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".f.tmp-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if info, err := os.Stat(l); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("leftover %v, %v", info, err)
		}
	}
}
