// Package yett_test holds what is true of the repository as a whole.
package yett_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/yett-broker/yett/"

// imports returns what a package reaches, itself left out.
func imports(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", module+pkg).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", pkg, err)
	}
	var ours []string
	for _, p := range strings.Fields(string(out)) {
		if rest, ok := strings.CutPrefix(p, module); ok && rest != pkg {
			ours = append(ours, rest)
		}
	}
	return ours
}

// TestRoomsStayApart holds the bans of the architecture: who may reach whom.
func TestRoomsStayApart(t *testing.T) {
	bans := map[string][]string{
		"cmd/yett-mcp":      {"internal/vault", "internal/access", "internal/approval", "internal/ledger", "internal/bodies", "internal/httpexec", "internal/sshexec", "internal/broker", "internal/session", "internal/durable", "internal/suspend"},
		"client":            {"internal/vault", "internal/access", "internal/approval", "internal/ledger", "internal/bodies", "internal/httpexec", "internal/sshexec", "internal/broker", "internal/suspend"},
		"internal/httpexec": {"internal/vault", "internal/access", "internal/ledger", "internal/broker", "internal/wire"},
		"internal/sshexec":  {"internal/vault", "internal/access", "internal/ledger", "internal/broker", "internal/wire"},
		"internal/access":   {"internal/vault", "internal/ledger", "internal/peer", "internal/broker", "internal/wire"},
		"internal/wire":     {"internal/peer", "internal/endpoint", "internal/vault", "internal/ledger", "internal/broker"},
		"internal/session":  {"internal/peer", "internal/vault", "internal/ledger", "internal/broker", "internal/wire"},
		"internal/approval": {"internal/peer", "internal/vault", "internal/ledger", "internal/broker", "internal/wire"},
		"internal/vault":    {"internal/access", "internal/peer", "internal/ledger", "internal/broker", "internal/wire"},
		"internal/console":  {"internal/vault", "internal/ledger", "internal/access", "internal/httpexec", "internal/sshexec", "internal/broker", "internal/session", "internal/peer", "internal/durable", "internal/bodies"},
		"internal/screen":   {"internal/vault", "internal/peer", "internal/broker", "internal/endpoint"},
		"internal/review":   {"internal/broker", "internal/httpexec", "internal/sshexec"},
		"internal/trial":    {"internal/vault", "internal/broker", "internal/httpexec", "internal/sshexec"},
		"internal/ledger":   {"internal/access", "internal/peer", "internal/vault", "internal/broker", "internal/wire"},
	}
	for pkg, banned := range bans {
		reached := imports(t, pkg)
		if len(reached) == 0 && pkg != "internal/durable" {
			t.Errorf("%s reaches nothing of ours: is the path right?", pkg)
		}
		for _, b := range banned {
			if slices.Contains(reached, b) {
				t.Errorf("%s reaches %s", pkg, b)
			}
		}
	}
	for pkg, only := range map[string][]string{"internal/peer": {"internal/action"}, "internal/preset": {"internal/action"}, "internal/action": nil, "internal/durable": nil, "internal/bodies": nil, "internal/dialrule": nil, "internal/bulk": nil, "internal/suspend": nil, "internal/notify": nil, "internal/sshconfig": nil, "internal/manual": nil} {
		for _, r := range imports(t, pkg) {
			if !slices.Contains(only, r) {
				t.Errorf("%s reaches %s", pkg, r)
			}
		}
	}
}

// TestMacOSStaysThere: the calls into macOS's libraries are linked into programs
// for macOS alone, and evidence reaches nothing else of ours there.
func TestMacOSStaysThere(t *testing.T) {
	for _, pkg := range []string{"cmd/yett", "cmd/yett-mcp"} {
		for _, r := range imports(t, pkg) {
			if strings.HasPrefix(r, "internal/macos") {
				t.Errorf("%s reaches %s on this system", pkg, r)
			}
		}
	}
	t.Setenv("GOOS", "darwin")
	t.Setenv("CGO_ENABLED", "0")
	reached := imports(t, "internal/peer")
	slices.Sort(reached)
	if want := []string{"internal/action", "internal/macos", "internal/macos/system"}; !slices.Equal(reached, want) {
		t.Errorf("on macOS internal/peer reaches %v, want %v", reached, want)
	}
}

// TestOnlyPerformExecutes: one function of the broker calls an executor, behind
// a durable intent, and what lends it values is called by it alone. Beside it a
// person may ask, with proof, for the public part of a key.
func TestOnlyPerformExecutes(t *testing.T) {
	files, err := filepath.Glob("internal/broker/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of the broker: %v", err)
	}
	count := func(call string) (where []string) {
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for range strings.Count(string(src), call) {
				where = append(where, filepath.Base(f))
			}
		}
		return where
	}
	for call, want := range map[string][]string{
		"b.execute(":  {"act.go"},
		".HTTP.Do(":   {"execute.go"},
		".SSH.Do(":    {"execute_ssh.go"},
		".SSH.Copy(":  {"execute_ssh.go"},
		".sshWay(":    {"execute_ssh.go"},
		".Vault.Use(": {"execute.go", "manage_key.go", "ssh_way.go"},
	} {
		if where := count(call); !slices.Equal(where, want) {
			t.Errorf("%s stands in %v; want %v", call, where, want)
		}
	}
}

// TestLaunchdLabel: the broker knows itself started by the job that install
// writes.
func TestLaunchdLabel(t *testing.T) {
	written, known := "", ""
	for file, to := range map[string]*string{"internal/install/units.go": &written, "internal/endpoint/inherit_darwin.go": &known} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(src)) {
			if name, value, ok := strings.Cut(line, "= \""); ok && (strings.Contains(name, "Label ") || strings.Contains(name, "launchdLabel")) {
				*to, _, _ = strings.Cut(value, "\"")
			}
		}
	}
	if known == "" || !strings.HasPrefix(written, known) {
		t.Errorf("launchd is told %q, the broker looks for %q", written, known)
	}
}
