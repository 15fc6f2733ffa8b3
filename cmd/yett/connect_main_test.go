package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMain makes a copy of this file that is called yett the installed yett,
// also where it is started without any environment, as a broker is.
func TestMain(m *testing.M) {
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "yett" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
