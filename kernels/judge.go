package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// verdict is what came of one kernel.
type verdict struct {
	passed     int
	outside    []string // tests that did not run here, as the table says
	again      []string // tests that passed at the second try only
	unexpected []string // everything that should be otherwise
	refused    []string // what was said in refusing
}

func (v *verdict) ok() bool { return len(v.unexpected) == 0 }

func (v *verdict) complain(format string, args ...any) {
	v.unexpected = append(v.unexpected, fmt.Sprintf(format, args...))
}

// testResult is what became of one test over all jobs.
type testResult struct {
	passed, failed bool
	output         strings.Builder // of where it failed or was skipped
}

func judge(ctx context.Context, k kernel, said *output) (*verdict, error) {
	v := &verdict{}
	if k.partly != "" {
		v.outside = append(v.outside, k.partly)
	}
	tests := map[string]*testResult{}
	for _, j := range k.jobs {
		o := said.of[j.Name]
		switch {
		case o == nil || !o.ended:
			v.complain("%s did not run", j.Name)
		case j.Tests:
			if err := v.collect(ctx, o, tests); err != nil {
				return nil, fmt.Errorf("%s: %w", j.Name, err)
			}
			if o.exit != 0 && o.exit != 1 {
				v.complain("%s ended with %d", j.Name, o.exit)
			}
		default:
			v.judgeCommand(j, o)
		}
	}
	v.judgeTests(tests, k.cannot)
	return v, nil
}

func (v *verdict) judgeCommand(j job, o *jobOutput) {
	text := o.text.String()
	if o.again != nil {
		text = o.again.String()
		v.again = append(v.again, j.Name+" had to run twice")
	}
	missing := slices.DeleteFunc(slices.Clone(j.says), func(s string) bool { return strings.Contains(text, s) })
	if o.exit != j.exit || len(missing) > 0 {
		v.complain("%s exited with %d, want %d; does not say %q:\n%s", j.Name, o.exit, j.exit, missing, text)
		return
	}
	v.passed++
	if j.refusal {
		v.refused = append(v.refused, j.Name+": "+strings.TrimSpace(text))
	}
}

func (v *verdict) judgeTests(tests map[string]*testResult, cannot map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		r := tests[name]
		switch reason := cannot[name]; {
		case reason != "":
			v.outside = append(v.outside, name+": "+reason)
			if r.passed && !r.failed {
				v.complain("%s passes, but the table says that it cannot run", name)
			}
		case r.failed:
			v.complain("%s failed:\n%s", name, r.output.String())
		case r.passed:
			v.passed++
		default:
			v.complain("%s was skipped everywhere:\n%s", name, r.output.String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cannot)) {
		if tests[name] == nil {
			v.outside = append(v.outside, name+": "+cannot[name])
		}
	}
}

// collect reads one job's tests. One that failed and then passed has passed,
// but it is named.
func (v *verdict) collect(ctx context.Context, o *jobOutput, tests map[string]*testResult) error {
	first, second := map[string]*testResult{}, map[string]*testResult{}
	if err := readTests(ctx, o.text.String(), first); err != nil {
		return err
	}
	if o.again != nil {
		if err := readTests(ctx, o.again.String(), second); err != nil {
			return fmt.Errorf("once more: %w", err)
		}
	}
	for name, r := range first {
		if s := second[name]; r.failed && s != nil {
			if r = s; s.passed && !s.failed {
				v.again = append(v.again, name+" passed at the second try")
			}
		}
		if all := tests[name]; all != nil {
			all.passed, all.failed = all.passed || r.passed, all.failed || r.failed
			all.output.WriteString(r.output.String())
			continue
		}
		tests[name] = r
	}
	return nil
}

// readTests reads what a test binary printed. Tests within tests count with them.
func readTests(ctx context.Context, text string, tests map[string]*testResult) error {
	c := exec.CommandContext(ctx, "go", "tool", "test2json")
	c.Stdin = strings.NewReader(text)
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("go tool test2json: %w", err)
	}
	ran := 0
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var e struct{ Action, Test, Output string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		name, _, _ := strings.Cut(e.Test, "/")
		if name == "" {
			continue
		}
		r := tests[name]
		if r == nil {
			r = &testResult{}
			tests[name] = r
		}
		top := e.Test == name
		switch e.Action {
		case "run":
			ran++
		case "output":
			r.output.WriteString(e.Output)
		case "pass":
			r.passed = r.passed || top
			if top {
				r.output.Reset()
			}
		case "fail":
			r.failed = true
		}
	}
	if ran == 0 {
		return errors.New("no test ran")
	}
	return nil
}

func (v *verdict) print(w io.Writer, k kernel, version string) {
	word := "as expected"
	if !v.ok() {
		word = fmt.Sprintf("%d UNEXPECTED", len(v.unexpected))
	}
	fmt.Fprintf(w, "%-12s %s: %d passed, %d not to be tested here, %s\n", k.name, version, v.passed, len(v.outside), word)
	for _, list := range [][]string{v.refused, v.again, v.outside, v.unexpected} {
		for _, line := range list {
			fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(strings.TrimSpace(line), "\n", "\n        "))
		}
	}
}
