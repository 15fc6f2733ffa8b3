package main

import "testing"

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
