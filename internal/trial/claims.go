package trial

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Claim is one line of what the demonstration proves.
type Claim struct {
	Name  string `json:"name"`
	Claim string `json:"claim"`
	OK    bool   `json:"ok"`
	Found string `json:"found"` // what was seen, or why it is not proven

	checked bool
}

// The claims by name.
const (
	claimNothingBefore = "nothing-before-approval"
	claimCard          = "card-names-the-agent"
	claimHTTP          = "http-action"
	claimSSH           = "ssh-action"
	claimEcho          = "echo-replaced"
	claimNotGranted    = "not-granted"
	claimOtherProcess  = "other-process"
	claimStolenID      = "stolen-session-id"
	claimOutside       = "nothing-else-arrived"
	claimRecorded      = "recorded"
	claimVerified      = "audit-verify"
	claimSecrets       = "secrets-nowhere"
	claimClean         = "nothing-left-behind"
)

func newClaims() []*Claim {
	var all []*Claim
	for _, c := range [][2]string{
		{claimNothingBefore, "Before a person approved, the agent could do nothing"},
		{claimCard, "The card named the agent's process, as the kernel knows it"},
		{claimHTTP, "The agent used an API without holding its token"},
		{claimSSH, "The agent ran a command over SSH without holding the key"},
		{claimEcho, "An API that repeats the token in its answer could not leak it"},
		{claimNotGranted, "A capability that was not granted was refused"},
		{claimOtherProcess, "Another process of the same account, running the same program, got nothing"},
		{claimStolenID, "The agent's session id was worth nothing on another connection"},
		{claimOutside, "Nothing but the two approved actions arrived outside"},
		{claimRecorded, "Each action was on record before it was done, and its outcome after"},
		{claimVerified, "The record is whole: yett audit verify"},
		{claimSecrets, "The planted secrets are nowhere that they must not be"},
		{claimClean, "Nothing is left behind"},
	} {
		all = append(all, &Claim{Name: c[0], Claim: c[1], Found: "not reached"})
	}
	return all
}

// check settles a claim. A claim that failed once stays failed.
func (t *trial) check(name string, ok bool, format string, args ...any) {
	for _, c := range t.claims {
		if c.Name == name && (!c.checked || c.OK) {
			c.checked, c.OK, c.Found = true, ok, fmt.Sprintf(format, args...)
		}
	}
}

// Proven reports whether every claim was checked and holds.
func (r Result) Proven() bool {
	for _, c := range r.Claims {
		if !c.OK {
			return false
		}
	}
	return true
}

// holds reports whether one claim was checked and holds, or there was nothing
// yet to check it on.
func (t *trial) holds(name string) bool {
	for _, c := range t.claims {
		if c.Name == name {
			return c.OK || t.dir == "" && !c.checked
		}
	}
	return false
}

// List prints the claims for a person.
func (r Result) List(w io.Writer, took time.Duration) {
	fmt.Fprint(w, "\nWhat was proven\n\n")
	good := 0
	for _, c := range r.Claims {
		mark := "✗"
		if c.OK {
			mark = "✓"
			good++
		}
		fmt.Fprintf(w, "  %s %s\n      %s\n", mark, c.Claim, c.Found)
	}
	fmt.Fprintf(w, "\n%d of %d, in %.1f s.\n", good, len(r.Claims), took.Seconds())
}

// step begins a chapter of the story.
func (t *trial) step(title string) {
	t.chapter++
	fmt.Fprintf(t.out, "\n%d  %s\n", t.chapter, title)
}

// say adds a line to it.
func (t *trial) say(format string, args ...any) {
	indent(t.out, "   ", fmt.Sprintf(format, args...))
}

func indent(w io.Writer, margin, text string) {
	for line := range strings.Lines(strings.TrimSuffix(text, "\n") + "\n") {
		fmt.Fprintln(w, strings.TrimRight(margin+line, " \n"))
	}
}
