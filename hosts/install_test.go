//go:build hosts && linux

package hosts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/yett-broker/yett/internal/yetttest"
)

// modules is where the hosts lie for the account of the tests.
func modules() string { return filepath.Join(filepath.Dir(yetttest.Bin("yett")), "node_modules") }

// install puts the installed hosts where the account of the tests can read
// them: as links to the same files where it can, else as copies.
func install(dir string) error {
	if _, err := os.Stat("node_modules"); err != nil {
		return errors.New("the hosts are not installed: make hosts does that, or scripts/host-modules")
	}
	to := filepath.Join(dir, "node_modules")
	if exec.Command("cp", "-Rl", "node_modules", to).Run() != nil {
		os.RemoveAll(to)
		if out, err := exec.Command("cp", "-R", "node_modules", to).CombinedOutput(); err != nil {
			return fmt.Errorf("copying the hosts: %w\n%s", err, out)
		}
	}
	if out, err := exec.Command("chmod", "-R", "a+rX", to).CombinedOutput(); err != nil {
		return fmt.Errorf("opening the hosts to the account of the tests: %w\n%s", err, out)
	}
	return nil
}

// npmArch is how packages of npm call this processor.
func npmArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// node is the Node that the hosts run on: the pinned one, whichever is installed.
func node() string { return filepath.Join(modules(), "node-linux-"+npmArch(), "bin", "node") }
