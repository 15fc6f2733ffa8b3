package main

import (
	"strings"
	"testing"
)

// TestNothingToStop: where no broker runs a stop says so as a failure does, on
// standard error, and in JSON what it did besides.
func TestNothingToStop(t *testing.T) {
	home := t.TempDir()
	out, said, code := runHere(t, "stop", "--home", home)
	if out != "" || !strings.Contains(said, "nothing to stop") || code != exitUnavailable {
		t.Errorf("exit %d, %q, %q", code, out, said)
	}
	out, said, code = runHere(t, "stop", "--json", "--home", home)
	if out != "{\"stopped\":false}\n" || !strings.Contains(said, `{"error":{"code":"unavailable"`) || code != exitUnavailable {
		t.Errorf("as JSON: exit %d, %q, %q", code, out, said)
	}
}
