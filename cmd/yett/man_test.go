package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func manual(t *testing.T) (dir string, pages map[string]string) {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir = t.TempDir()
	if err := writeManual(newRoot(&app{passFD: -1}), dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d pages: %v", len(files), err)
	}
	pages = map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(f)] = string(text)
	}
	return dir, pages
}

// TestManualHasEveryCommand: a page for each command that people see, with all
// of its flags, and none for the parts of the demonstration.
func TestManualHasEveryCommand(t *testing.T) {
	_, pages := manual(t)
	for _, c := range documented(newRoot(&app{passFD: -1})) {
		page, ok := pages[pageName(c)+".1"]
		if !ok {
			t.Errorf("%s has no page", c.CommandPath())
		}
		for line := range strings.Lines(c.LocalFlags().FlagUsages()) {
			flag, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(flag, "--") && !strings.Contains(page, `.B `+roff(flag)) {
				t.Errorf("the page of %s lacks %s", c.CommandPath(), flag)
			}
		}
		if !strings.Contains(page, `.TH "`) || !strings.Contains(page, `"2023\-11\-14"`) {
			t.Errorf("the page of %s begins with %.100s", c.CommandPath(), page)
		}
	}
	for name := range pages {
		if strings.Contains(name, "try-") || name == "yett-man.1" {
			t.Errorf("there is a page %s", name)
		}
	}
	for _, code := range []int{exitDone, exitFailed, exitUsage, exitRefused, exitUnavailable, exitLocked, exitWaited} {
		if !strings.Contains(pages["yett.1"], fmt.Sprintf("\n.B %d\n", code)) {
			t.Errorf("yett.1 lacks the exit code %d", code)
		}
	}
}

// TestManualFormats: the formatter has nothing to complain of, and text that
// looks like its commands comes out as it is.
func TestManualFormats(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skipf("%v", err)
	}
	dir, pages := manual(t)
	for name, page := range pages {
		if i := strings.IndexFunc(page, beyondASCII); i >= 0 {
			t.Errorf("%s: %q", name, page[i:min(i+20, len(page))])
		}
		if out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", filepath.Join(dir, name)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	hostile := ".so /etc/passwd\n'ab \\fB a-b `c` ~ ^"
	var page strings.Builder
	page.WriteString(".TH X 1\n.SH NAME\nx\n.SH A\n")
	writeText(&page, hostile)
	c := exec.Command(groff, "-man", "-Tascii", "-P-cbou")
	c.Stdin = strings.NewReader(page.String())
	out, err := c.Output()
	if more := roff("NAME…"); more != `NAME\[u2026]` {
		t.Errorf("an ellipsis is %s", more)
	}
	if got := strings.Join(strings.Fields(string(out)), " "); err != nil || !strings.Contains(got, strings.Join(strings.Fields(hostile), " ")) {
		t.Errorf("%v: %s", err, out)
	}
}
