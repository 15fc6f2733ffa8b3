package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// built are the programs that go into every machine. All are static.
var built = []struct {
	name string   // of the file
	in   string   // directory in the machine
	args []string // of go
}{
	{"kernels", "bin", []string{"build", "./kernels"}},
	{"yett", "bin", []string{"build", "./cmd/yett"}},
	{"yett-mcp", "bin", []string{"build", "./cmd/yett-mcp"}},
	{"peer.test", "tests", []string{"test", "-c", "./internal/peer"}},
	{"yetttest.test", "tests", []string{"test", "-c", "./internal/yetttest"}},
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func build(ctx context.Context, root, dir string) error {
	for _, p := range built {
		args := []string{p.args[0], "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, p.name)}
		c := exec.CommandContext(ctx, "go", append(args, p.args[1:]...)...)
		c.Dir = root
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", p.name, err, out)
		}
	}
	return nil
}
