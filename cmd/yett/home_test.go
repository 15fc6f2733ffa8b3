package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// TestNextStepsCarryTheHome: each command of ours in a text that tells what to
// run carries the --home that was given, and nothing else is changed.
func TestNextStepsCarryTheHome(t *testing.T) {
	for _, c := range []struct{ home, text, want string }{
		{"", "Start it: yett up.", "Start it: yett up."},
		{"/h", "Start it: yett up.", "Start it: yett up --home /h."},
		{"/a b", "yett stop, yett up", "yett stop --home '/a b', yett up --home '/a b'"},
		{"/h", "yett touch-id remove NAME; yett vault restore FILE", "yett touch-id remove --home /h NAME; yett vault restore --home /h FILE"},
		{"/h", "yett approve a_1 --for 30m", "yett approve --home /h a_1 --for 30m"},
		{"/h", "Install yett and yett-mcp; yett connect enters it; yett upwards.", "Install yett and yett-mcp; yett connect enters it; yett upwards."},
	} {
		a := &app{}
		newRoot(a)
		a.home = c.home
		if got := a.here(c.text); got != c.want {
			t.Errorf("%q below %q became %q, want %q", c.text, c.home, got, c.want)
		}
	}
}

// TestAHomeThatIsAFile: yett serve says what to do about it.
func TestAHomeThatIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "home")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := vault.Load(file)
	var fail *wire.Error
	if !errors.As(vaultUnusable(endpoint.Location{Home: file, Test: true}, err), &fail) || !strings.Contains(fail.Message, "not a directory") || !strings.Contains(fail.NextStep, "another directory with --home") {
		t.Errorf("%+v", fail)
	}
}
