package review

import (
	"slices"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

// TestG3_MatrixShowsTheGrantsOwnEnd: not its session's, and one action as one;
// the command line stands there once for each credential.
func TestG3_MatrixShowsTheGrantsOwnEnd(t *testing.T) {
	text := "[credential.a]\nkind = \"bearer\"\norigin = \"https://a.invalid\"\n"
	for _, name := range []string{"short", "once", "not"} {
		text += "[capability.\"http:" + name + "\"]\ncredential = \"a\"\nmethods = [\"GET\"]\npaths = [\"/x\"]\n"
	}
	policy, err := access.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2030, 1, 1, 20, 0, 0, 0, time.UTC)
	s := wire.Session{SessionID: "s_1", State: "active", ExpiresAt: end, Capabilities: []string{"http:once", "http:short"}, Grants: []wire.Granted{
		{Capability: "http:once", Until: end.Add(-2 * time.Hour), Once: true}, {Capability: "http:short", Until: end.Add(-time.Hour)}}}
	r := &Facts{Policy: policy, Secrets: wire.List[wire.Secret]{Items: []wire.Secret{{Name: "a", Set: true}}}}
	r.Sessions.Items = []wire.Session{s}
	access, commands := map[string]Cell{}, 0
	for _, c := range NewMatrix(r).Cells {
		if c.Process == processOf(s) {
			access[c.Capability] = c
		}
		if c.Process == commandLine {
			commands++
		}
	}
	for name, want := range map[string]string{
		"http:short": "granted, until 2030-01-01T19:00:00Z at the latest",
		"http:once":  "granted for one action, until 2030-01-01T18:00:00Z at the latest",
		"http:not":   "none; it may ask, and you decide on a card",
	} {
		if access[name].Access != want {
			t.Errorf("%s: %q", name, access[name].Access)
		}
	}
	if !slices.Contains(access["http:short"].Ends, "at the latest 2030-01-01T19:00:00Z") || commands != 1 {
		t.Errorf("%v, %d rows of the command line", access["http:short"].Ends, commands)
	}
	if words := screen.GrantWords(s, clock); len(words) != 2 || words[0] != "http:once (once, until 2030-01-01T18:00:00Z)" {
		t.Errorf("%v", words)
	}
}
