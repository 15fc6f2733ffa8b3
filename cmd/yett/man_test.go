package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/manual"
)

func manualPages(t *testing.T) (dir string, pages map[string]string) {
	t.Helper()
	dir = t.TempDir()
	if err := manual.Write(newRoot(&app{passFD: -1}), dir, version, time.Unix(1700000000, 0).UTC()); err != nil {
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

// shown are a command and all below it that are shown to people.
func shown(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, shown(sub)...)
		}
	}
	return all
}

// TestManualHasEveryCommand: a page for each command that people see, with all
// of its flags, and none for the parts of the demonstration.
func TestManualHasEveryCommand(t *testing.T) {
	_, pages := manualPages(t)
	for _, c := range shown(newRoot(&app{passFD: -1})) {
		page, ok := pages[strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"]
		if !ok {
			t.Errorf("%s has no page", c.CommandPath())
		}
		for line := range strings.Lines(c.LocalFlags().FlagUsages()) {
			flag, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(flag, "--") && !strings.Contains(page, `.B `+strings.ReplaceAll(flag, "-", `\-`)) {
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

// TestManualFormats: the formatter has nothing to complain of.
func TestManualFormats(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skipf("%v", err)
	}
	dir, pages := manualPages(t)
	for name, page := range pages {
		if i := strings.IndexFunc(page, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
			t.Errorf("%s: %q", name, page[i:min(i+20, len(page))])
		}
		if out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", filepath.Join(dir, name)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
