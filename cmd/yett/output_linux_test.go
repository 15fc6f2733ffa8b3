package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/screen"
)

// TestFullDevice: a command whose output could not be written fails and says
// so, in text and in JSON, also where only its help was asked for.
func TestFullDevice(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"status", "-h"}, {"completion", "bash"}, {"add"}} {
		errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		code := run(args, os.Stdin, full, errs)
		said, err := os.ReadFile(errs.Name())
		if err != nil || errs.Close() != nil {
			t.Fatal(err)
		}
		if code != exitFailed || !strings.Contains(string(said), "no space left on device") {
			t.Errorf("yett %s ended with %d and said %q", strings.Join(args, " "), code, said)
		}
	}
}

// TestWidthOfOurOutput: what is printed through the output that notices failures
// still has the width of its terminal.
func TestWidthOfOurOutput(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 133}); err != nil {
		t.Fatal(err)
	}
	if n := screen.Width(&output{File: terminal}); n != 133 {
		t.Errorf("%d columns", n)
	}
}
