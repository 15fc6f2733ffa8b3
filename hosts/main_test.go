//go:build hosts && linux

package hosts

import (
	"fmt"
	"os"
	"testing"

	"github.com/yett-broker/yett/internal/yetttest"
)

// TestMain runs the tests as yetttest does, offline; or it is the program that
// stands between a host and yett-mcp and writes down what they say.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == tapArgument {
		os.Exit(tap(os.Args[2:]))
	}
	keep, err := goldenUpdate()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := yetttest.Main(m, install, leaveNetwork)
	if err := keep(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
