package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	testTimeout = 4 * time.Minute // of the test binary: a test that needs it has no deadline of its own
	rowTimeout  = 9 * time.Minute // of building and testing
)

// result is what became of one test of one row.
type result struct {
	Room    string `json:"room"`
	Control string `json:"control"`
	Test    string `json:"test"`
	Failed  bool   `json:"failed"`
	Why     string `json:"why,omitempty"` // why it does not count as failed
}

func (r result) answer() string {
	if r.Failed {
		return "yes"
	}
	return "NO: " + r.Why
}

// What became of a test. Only a test that ended itself counts as failed; one
// that hung until the whole run was stopped would do so on a slow day too.
const (
	failed  = "failed"
	passed  = "passed"
	skipped = "skipped"
	crashed = "crashed" // the test binary died under it
	hung    = "hangs: it has no deadline of its own"
	notRun  = "was not run"
)

// tryUnchanged runs every named test as the tree stands: failing without the
// control means something only for a test that passes with it.
func tryUnchanged(ctx context.Context, root string, rows []control, progress io.Writer) (map[string]string, error) {
	packages := map[string][]string{}
	for _, r := range rows {
		for _, name := range r.Tests {
			if !slices.Contains(packages[r.Package], name) {
				packages[r.Package] = append(packages[r.Package], name)
			}
		}
	}
	before := map[string]string{}
	for pkg, tests := range packages {
		fmt.Fprintf(progress, "%s as it stands: %d tests\n", pkg, len(tests))
		ends, err := runTests(ctx, root, "", pkg, tests)
		if err != nil {
			return nil, err
		}
		for name, end := range ends {
			before[pkg+" "+name] = end
			if end != passed {
				fmt.Fprintf(progress, "  %s: %s\n", name, end)
			}
		}
	}
	return before, nil
}

// tryRow removes one control and runs its tests.
func tryRow(ctx context.Context, root string, c control, before map[string]string, progress io.Writer) []result {
	start := time.Now()
	ends, err := runChanged(ctx, root, c)
	var results []result
	for _, name := range c.Tests {
		r := result{Room: c.room, Control: c.Name, Test: name}
		switch {
		case err != nil:
			r.Why = err.Error()
		case before[c.Package+" "+name] != passed:
			r.Why = "as the tree stands it " + before[c.Package+" "+name]
		case ends[name] == failed || ends[name] == crashed:
			r.Failed = true
		default:
			r.Why = ends[name]
		}
		fmt.Fprintf(progress, "  %s: %s (%.0f s)\n", name, r.answer(), time.Since(start).Seconds())
		results = append(results, r)
	}
	return results
}

// runChanged runs the tests of a row on a tree without the control.
func runChanged(ctx context.Context, root string, c control) (map[string]string, error) {
	files, err := c.changed(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "yett-controls-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, root, files)
	if err != nil {
		return nil, fmt.Errorf("writing the overlay: %w", err)
	}
	if err := build(ctx, root, overlay); err != nil {
		return nil, err
	}
	ends, err := runTests(ctx, root, overlay, c.Package, c.Tests)
	if err != nil {
		return nil, err
	}
	if len(c.Tests) == 1 {
		return ends, nil
	}
	for _, name := range c.Tests { // another one took the test binary with it
		if ends[name] == notRun {
			alone, err := runTests(ctx, root, overlay, c.Package, []string{name})
			if err != nil {
				return nil, err
			}
			ends[name] = alone[name]
		}
	}
	return ends, nil
}

// writeOverlay writes the changed files and the overlay that names them, so
// that an ordinary account, which some tests change to, can read them.
func writeOverlay(dir, root string, files map[string][]byte) (string, error) {
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}

// build compiles everything: a test that builds the programs itself would fail
// for the wrong reason if they did not.
func build(ctx context.Context, root, overlay string) error {
	c := exec.CommandContext(ctx, "go", "build", "./...")
	c.Dir, c.Env = root, environment(overlay)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("it does not build (%w):\n%s", err, out)
	}
	return nil
}

// environment hands the overlay to every go command below a test. Without cgo
// tests and programs share what is compiled; the race detector is not needed to
// see a test fail.
func environment(overlay string) []string {
	env := append(os.Environ(), "CGO_ENABLED=0")
	if overlay == "" {
		return env
	}
	return append(env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
}

// event is one line of `go test -json`.
type event struct{ Action, Test, Output string }

// runTests runs tests of a package, once, and says what became of each.
func runTests(ctx context.Context, root, overlay, pkg string, tests []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	tmp, err := os.MkdirTemp("", "yc") // short: tests make sockets below it
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	defer endStrays(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-timeout", testTimeout.String(),
		"-run", "^("+strings.Join(tests, "|")+")$", pkg)
	c.Dir, c.Env = root, append(environment(overlay), "TMPDIR="+tmp)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	runErr := c.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("stopped after %s", rowTimeout)
	}
	events, err := parseEvents(&stdout)
	if err != nil {
		return nil, err
	}
	return judge(events, tests, runErr, stderr.String())
}

func parseEvents(r io.Reader) ([]event, error) {
	var events []event
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading go test -json: %w", err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// judge reads what became of each test. Tests that build the programs before
// they run do not run at all when that fails: an error, like a package that
// does not build.
func judge(events []event, tests []string, runErr error, stderr string) (map[string]string, error) {
	ends := map[string]string{}
	for _, name := range tests {
		ends[name] = notRun
	}
	var output strings.Builder
	anything, timedOut := false, false
	for _, e := range events {
		if e.Action == "build-fail" {
			return nil, fmt.Errorf("it does not build:\n%s", buildOutput(events))
		}
		if e.Action == "output" {
			output.WriteString(e.Output)
			timedOut = timedOut || strings.HasPrefix(e.Output, "panic: test timed out after ")
		}
		if _, ours := ends[e.Test]; !ours {
			continue
		}
		anything = true
		switch e.Action {
		case "run":
			ends[e.Test] = crashed
		case "pass":
			ends[e.Test] = passed
		case "fail":
			ends[e.Test] = failed
		case "skip":
			ends[e.Test] = skipped
		}
	}
	if !anything && runErr != nil {
		return nil, fmt.Errorf("no test ran (%v):\n%s%s", runErr, output.String(), stderr)
	}
	for name, end := range ends {
		if end == crashed && timedOut {
			ends[name] = hung
		}
	}
	return ends, nil
}

func buildOutput(events []event) string {
	var b strings.Builder
	for _, e := range events {
		if e.Action == "build-output" {
			b.WriteString(e.Output)
		}
	}
	return b.String()
}
