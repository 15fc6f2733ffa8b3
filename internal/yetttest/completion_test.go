package yetttest

import (
	"os/exec"
	"testing"
)

// TestCompletionOfCards: the shell offers the cards that wait, by what the
// broker tells without a proof: no digest, nothing of the card, no session.
func TestCompletionOfCards(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	offered := func(command string) string {
		t.Helper()
		out, err := exec.Command(Bin("yett"), "__complete", "--home", b.Home, command, "").Output()
		must(t, err)
		return string(out)
	}
	if out := offered("approve"); out != ":36\n" {
		t.Errorf("without cards: %q", out)
	}
	c := b.Open()
	c.OpenSession("http:demo.read")
	card := b.WaitCard()
	for _, command := range []string{"approve", "deny"} {
		if out := offered(command); out != card.ApprovalID+"\thttp:demo.read\n:36\n" {
			t.Errorf("%s: %q", command, out)
		}
	}
	if out := offered("revoke"); out != ":4\n" {
		t.Errorf("sessions are told without a proof: %q", out)
	}
}
