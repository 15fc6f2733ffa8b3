//go:build linux

package shim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The test binary plays other programs when this variable is set: the broker's
// end of the socket, a host that starts the shim, a shim with a tool that
// misbehaves.
const roleVariable = "YETT_SHIM_TEST_ROLE"

// programs holds yett-mcp and, beside it, the test binary under the name yett:
// the shim speaks only to a broker that runs the program installed there.
var programs string

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(runTests(m))
	case "broker":
		os.Exit(playBroker(os.Args[1]))
	case "host":
		os.Exit(playHost(os.Args[1:]))
	case "hold": // a process that only holds what it inherited
		time.Sleep(time.Minute)
		os.Exit(0)
	case "write":
		os.NewFile(3, "inherited").WriteString(os.Args[1])
		os.Exit(0)
	case "misbehave":
		os.Exit(playMisbehaving())
	default:
		fmt.Fprintln(os.Stderr, "unknown role", role)
		os.Exit(2)
	}
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "yett-shim-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "yett-mcp"), "github.com/yett-broker/yett/cmd/yett-mcp")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building yett-mcp: %v\n%s", err, out)
		return 1
	}
	self, err := os.Executable()
	if err == nil {
		err = copyFile(filepath.Join(dir, "yett"), self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// inRole is the environment of the test binary in a role. Without what the race
// detector is told, the program would sleep a second before it exits.
func inRole(role string) []string {
	return []string{roleVariable + "=" + role, "GORACE=" + os.Getenv("GORACE")}
}

func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

func shimPath() string { return filepath.Join(programs, "yett-mcp") }

// separators that must not stand on a line of ours.
var rawSeparators = [][]byte{[]byte("\u2028"), []byte("\u2029"), []byte("\u0085")}

func hasSeparator(line []byte) bool {
	for _, s := range rawSeparators {
		if bytes.Contains(line, s) {
			return true
		}
	}
	return false
}
