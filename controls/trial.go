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
	testTimeout      = 4 * time.Minute // of the tests of a row: a test that needs it has no deadline of its own
	unchangedTimeout = 40 * time.Minute
	buildTimeout     = 5 * time.Minute // besides
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

// tryUnchanged runs every named test of a package as the tree stands: failing
// without the control means something only for a test that passes with it.
func (p *plan) tryUnchanged(ctx context.Context, pkg string, rows []work) (map[string]string, error) {
	var tests []string
	for _, w := range rows {
		for _, name := range w.Tests {
			if !slices.Contains(tests, name) {
				tests = append(tests, name)
			}
		}
	}
	p.say("%s as it stands: %d tests\n", pkg, len(tests))
	ends, err := runTests(ctx, p.root, "", pkg, tests, unchangedTimeout)
	if err != nil {
		return nil, err
	}
	for _, name := range tests {
		if ends[name] != passed {
			p.say("  %s: %s\n", name, ends[name])
		}
	}
	return ends, nil
}

// tryRow removes one control and runs its tests.
func tryRow(ctx context.Context, root string, c control, before map[string]string) []result {
	ends, err := runChanged(ctx, root, c)
	return c.results(func(test string) (failedThere bool, why string) {
		switch end := ends[test]; {
		case err != nil:
			return false, err.Error()
		case before[test] != passed:
			return false, "as the tree stands it " + before[test]
		case end == failed || end == crashed:
			return true, ""
		default:
			return false, end
		}
	})
}

// results are those of a row's tests, in their order.
func (c control) results(of func(test string) (failed bool, why string)) []result {
	var all []result
	for _, test := range c.Tests {
		did, why := of(test)
		all = append(all, result{Room: c.room, Control: c.Name, Test: test, Failed: did, Why: why})
	}
	return all
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
	if err := build(ctx, root, overlay, c.Package); err != nil {
		return nil, err
	}
	ends, err := runTests(ctx, root, overlay, c.Package, c.Tests, testTimeout)
	if err != nil {
		return nil, err
	}
	if len(c.Tests) == 1 {
		return ends, nil
	}
	for _, name := range c.Tests { // another one took the test binary with it
		if ends[name] == notRun {
			alone, err := runTests(ctx, root, overlay, c.Package, []string{name}, testTimeout)
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

// build compiles the programs where tests of the package may build them: such a
// test would fail for the wrong reason if they did not. Nothing is linked.
func build(ctx context.Context, root, overlay, pkg string) error {
	need, err := buildsPrograms(root, pkg)
	if err != nil || !need {
		return err
	}
	c := exec.CommandContext(ctx, "go", "list", "-export", "-f", "{{with .Export}}{{end}}", "./cmd/...")
	c.Dir, c.Env = root, environment(overlay)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("it does not build (%w):\n%s", err, out)
	}
	return nil
}

// buildsPrograms reports whether a package runs the go command.
func buildsPrograms(root, pkg string) (bool, error) {
	paths, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		return false, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}
		if bytes.Contains(text, []byte(`exec.Command("go"`)) || bytes.Contains(text, []byte(`internal/yetttest"`)) {
			return true, nil
		}
	}
	return false, nil
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
func runTests(ctx context.Context, root, overlay, pkg string, tests []string, timeout time.Duration) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+buildTimeout)
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
	c := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-timeout", timeout.String(),
		"-run", "^("+strings.Join(tests, "|")+")$", pkg)
	c.Dir, c.Env = root, append(environment(overlay), "TMPDIR="+tmp)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	runErr := c.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("stopped after %s", timeout+buildTimeout)
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
