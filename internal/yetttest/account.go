// Package yetttest gives tests a real broker on a temporary home: the real
// programs, run as people run them, under an ordinary account. Root is granted
// every right over /proc and would hide each denial, so a test binary that is
// started as root builds the programs and then runs itself again as an account
// without rights.
package yetttest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// AccountID is the numeric account of tests that root starts. It needs no
// entry in the account database: every test gives --home.
const AccountID = 64917

const envBin = "YETTTEST_BIN"

// Main builds the programs, changes to an ordinary account if need be, and
// runs the tests. prepare puts beside the programs what else the tests need,
// before the change. Main returns the exit code.
func Main(m *testing.M, prepare ...func(dir string) error) int {
	if os.Getenv(envBin) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "yett-test-")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return complain(err)
	}
	if err := build(dir); err != nil {
		return complain(err)
	}
	for _, p := range prepare {
		if err := p(dir); err != nil {
			return complain(err)
		}
	}
	os.Setenv(envBin, dir)
	if raceEnabled { // else each program waits a second before it exits
		os.Setenv("GORACE", "atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	}
	if os.Getuid() != 0 {
		return m.Run()
	}
	return runAsAccount(dir)
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "yetttest:", err)
	return 1
}

// build builds yett and yett-mcp beside one another. Where the test has the race
// detector they have it too, and a second pair is built as it is shipped.
func build(dir string) error {
	if !raceEnabled {
		return buildPrograms(dir, "CGO_ENABLED=0")
	}
	if err := buildPrograms(dir, "CGO_ENABLED=1", "-race"); err != nil {
		return err
	}
	return buildPrograms(filepath.Join(dir, shipped), "CGO_ENABLED=0")
}

func buildPrograms(dir, cgo string, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-w", "-o", dir + "/"}, flags...)
	c := exec.Command("go", append(args, "github.com/yett-broker/yett/cmd/yett", "github.com/yett-broker/yett/cmd/yett-mcp")...)
	c.Env = append(os.Environ(), cgo)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	return nil
}

// runAsAccount runs this test binary again as the ordinary account, from a
// copy that the account may read, in a directory of its own.
func runAsAccount(dir string) int {
	self := filepath.Join(dir, "tests")
	if err := copyFile("/proc/self/exe", self, 0o755); err != nil {
		return complain(err)
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return complain(err)
	}
	if err := os.Chown(work, AccountID, AccountID); err != nil {
		return complain(err)
	}
	// go test keeps its own log of opened files, in a directory of root's.
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool { return strings.HasPrefix(a, "-test.testlogfile") })
	c := exec.Command(self, args...)
	c.Dir = work
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Env = append(os.Environ(), "HOME="+work, "TMPDIR="+work, "GORACE="+os.Getenv("GORACE"))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: AccountID, Gid: AccountID}}
	err := c.Run()
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return complain(err)
	}
	return 0
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
