package selftest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "selftest" { // the other side of a check
		os.Exit(Play(os.Args[3], os.Args[5]))
	}
	if len(os.Args) == 4 && os.Args[1] == "selftest" {
		os.Exit(Play(os.Args[3], ""))
	}
	os.Exit(m.Run())
}

// TestEveryCheckPasses with this program as the other side. Nothing is left.
func TestEveryCheckPasses(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ok, err := Run(t.Context(), program, false, func(c Check) {
		if names[c.Name] || c.Found == "" || c.Result == Fail || c.Code != 0 {
			t.Errorf("%+v", c)
		}
		if c.Result == Skip && c.Found != string(errInteractive) && !strings.Contains(c.Found, "macOS") {
			t.Errorf("%s was not tried: %s", c.Name, c.Found)
		}
		names[c.Name] = true
	})
	if !ok || err != nil || len(names) != len(portable())+len(ofSystem())+len(ofPerson()) {
		t.Errorf("%t, %v, %d names", ok, err, len(names))
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestOtherSideThatDoesNotPlayFails: no check passes because nothing happened.
func TestOtherSideThatDoesNotPlayFails(t *testing.T) {
	failed := map[string]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ok, err := Run(ctx, "/bin/false", false, func(c Check) {
		if strings.HasPrefix(c.Name, "peer") {
			failed[c.Name] = c.Result == Fail
		}
	})
	if ok || !errors.Is(err, context.DeadlineExceeded) || len(failed) != 7 {
		t.Errorf("%t, %v, %v", ok, err, failed)
	}
	for name, failed := range failed {
		if !failed {
			t.Errorf("%s passed, and nobody was there", name)
		}
	}
}

func TestCheckSaysTheRawNumber(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Check
	}{
		{nil, Check{Name: "n", Result: Pass, Found: "found"}},
		{errInteractive, Check{Name: "n", Result: Skip, Found: string(errInteractive)}},
		{syscall.EPERM, Check{Name: "n", Result: Fail, Found: "operation not permitted", Code: int(syscall.EPERM)}},
		{errors.New("why"), Check{Name: "n", Result: Fail, Found: "why"}},
	} {
		got := trial{"n", func(context.Context, *setting) (string, error) { return "found", c.err }}.run(t.Context(), nil)
		if got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}

// TestChecksThatAreDocumentedExist: docs/macos.md names checks that would have
// to pass on a Mac; each of them is one.
func TestChecksThatAreDocumentedExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/macos.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(b)
	}
	named := regexp.MustCompile("self-test's `([^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 10 {
		t.Errorf("only %d checks are named", len(named))
	}
	for _, n := range named {
		if !strings.Contains(sources.String(), `{"`+n[1]) {
			t.Errorf("the self-test has no check %q", n[1])
		}
	}
}
