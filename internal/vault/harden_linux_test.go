package vault

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHarden(t *testing.T) {
	words := Harden()
	var lim unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_CORE, &lim))
	if lim.Cur != 0 || lim.Max != 0 {
		t.Errorf("core files are on: %+v", lim)
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || dumpable != 0 {
		t.Errorf("dumpable %d, %v", dumpable, err)
	}

	// Where Harden does not say that memory cannot be locked, keys are locked.
	v, _ := newVault(t)
	if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "swapped") }) && lockedKiB(t) == "0" {
		t.Error("the keys of an unlocked vault lie in ordinary memory")
	}
	v.Lock()
	if got := lockedKiB(t); got != "0" {
		t.Errorf("%s KiB stay locked after the vault is", got)
	}
}

func lockedKiB(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmLck:" {
			return f[1]
		}
	}
	t.Fatal("no VmLck")
	return ""
}
